# Contract: needs a trained run and its dataset, or a model from elsewhere; makes
# {ROOT}/{scale}/evaluations/{suite}/{run}/{seed}.json and, in {seed}/, what stands behind it.


rule evaluate:
    input:
        model=get_training_result,
        weights=get_weights,
        data=get_training_data,
        ngrams=get_frequent_ngrams,
        benchmarks=get_benchmarks,
    output:
        directory(f"{ROOT}/{{scale}}/evaluations/{{suite}}/{{run}}/{{seed}}"),
        result=f"{ROOT}/{{scale}}/evaluations/{{suite}}/{{run}}/{{seed}}.json",
    log:
        f"{ROOT}/{{scale}}/logs/evaluate/{{suite}}/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/evaluate/{{suite}}/{{run}}/{{seed}}.tsv"
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.gpus(wildcards.run, wildcards.suite),
    params:
        root=lambda wildcards: ROOT,
        cfg=get_evaluation_slice,
        code=lambda wildcards: PLAN.code("evaluate", wildcards.suite, wildcards.run),
    message:
        "Evaluate {wildcards.suite} on {wildcards.run}, seed {wildcards.seed}"
    shell:
        "difftransformer evaluate --slice {params.cfg} --code {params.code} --model '{input.model}'"
        " --dataset '{input.data}' --ngrams '{input.ngrams}' --seed {wildcards.seed}"
        " --threads {threads} --output {output.result} --results {params.root} --log {log}"
