# Contract: needs a trained run and its dataset, or a model from elsewhere; makes
# {ROOT}/{scale}/evaluations/{suite}/{run}/{seed}.json and, in {seed}/, what stands behind it. Answers
# that are to be judged lie there; judging makes {ROOT}/{scale}/judgements/{judge}/{suite}/{run}/...


rule evaluate:
    input:
        model=get_training_result,
        weights=get_weights,
        beside=get_model,
        data=get_measured_data,
        dataset=lambda wildcards: get_datasets(get_measured_data(wildcards)),
        ngrams=get_frequent_ngrams,
        sums=lambda wildcards: get_sums(get_frequent_ngrams(wildcards)),
        benchmarks=get_benchmarks,
    output:
        directory(f"{ROOT}/{{scale}}/evaluations/{{suite}}/{{run}}/{{seed}}"),
        result=f"{ROOT}/{{scale}}/evaluations/{{suite}}/{{run}}/{{seed}}.json",
    log:
        f"{ROOT}/{{scale}}/logs/evaluate/{{suite}}/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/evaluate/{{suite}}/{{run}}/{{seed}}.tsv"
    threads: 1
    resources:
        gpu=lambda wildcards: JOBS.gpus(wildcards.run, wildcards.suite) or None,
    params:
        root=lambda wildcards: ROOT,
        cfg=get_evaluation_slice,
        code=lambda wildcards: JOBS.code(
            "evaluate", wildcards.suite, wildcards.run, seed=int(wildcards.seed)
        ),
    message:
        "Evaluate {wildcards.suite} on {wildcards.run}, seed {wildcards.seed}"
    shell:
        "difftransformer evaluate --slice {params.cfg} --code {params.code} --model '{input.model}'"
        " --dataset '{input.data}' --ngrams '{input.ngrams}' --seed {wildcards.seed}"
        " --threads {threads} --output {output.result} --results {params.root} --log {log}"


rule judge_answers:
    input:
        answers=f"{ROOT}/{{scale}}/evaluations/{{suite}}/{{run}}/{{seed}}",
        result=f"{ROOT}/{{scale}}/evaluations/{{suite}}/{{run}}/{{seed}}.json",
    output:
        directory(f"{ROOT}/{{scale}}/judgements/{{judge}}/{{suite}}/{{run}}/{{seed}}"),
        result=f"{ROOT}/{{scale}}/judgements/{{judge}}/{{suite}}/{{run}}/{{seed}}.json",
    log:
        f"{ROOT}/{{scale}}/logs/judge_answers/{{judge}}/{{suite}}/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/judge_answers/{{judge}}/{{suite}}/{{run}}/{{seed}}.tsv"
    params:
        root=lambda wildcards: ROOT,
        kept=lambda wildcards: JOBS.layout.kept_judgements,
        cfg=get_judgement_slice,
        code=lambda wildcards: JOBS.code(
            "judge_answers", wildcards.judge, wildcards.suite
        ),
    message:
        "Judge {wildcards.suite} of {wildcards.run}, seed {wildcards.seed}, by {wildcards.judge}"
    shell:
        "difftransformer judge_answers --slice {params.cfg} --code {params.code}"
        " --answers {input.result} --kept {params.kept} --seed {wildcards.seed}"
        " --output {output.result} --results {params.root} --log {log}"
