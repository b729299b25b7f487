# Contract: needs a packed dataset; makes {ROOT}/{scale}/runs/{run}/{seed}/: weights, config,
# history.csv and training.json. Checkpoints live in {ROOT}/{scale}/state, outside the outputs, so a
# killed job continues from its newest whole one.


rule pretrain:
    input:
        get_training_data,
    output:
        model=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/model.safetensors",
        config=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/config.json",
        history=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/history.csv",
        result=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/training.json",
    log:
        f"{ROOT}/{{scale}}/logs/pretrain/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/pretrain/{{run}}/{{seed}}.tsv"
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.gpus(wildcards.run),
    params:
        root=lambda wildcards: ROOT,
        cfg=get_run_slice,
        code=lambda wildcards: PLAN.code("pretrain", wildcards.run),
    message:
        "Train {wildcards.run}, seed {wildcards.seed}"
    shell:
        "difftransformer pretrain --slice {params.cfg} --code {params.code} --dataset {input}"
        " --seed {wildcards.seed} --threads {threads} --output {output.result}"
        " --results {params.root} --log {log}"
