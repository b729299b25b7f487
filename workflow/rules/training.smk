# Contract: needs a packed dataset, and to extend or continue a run also the finished training of the
# same seed that `init_from` names; makes {ROOT}/{scale}/runs/{run}/{seed}/: weights, config,
# history.csv, training.json and, in kept/, weights of earlier steps. Checkpoints live in {ROOT}/{scale}/state, outside the outputs, so a
# killed job continues from its newest whole one.


rule pretrain:
    input:
        get_training_data,
    output:
        model=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/model.safetensors",
        config=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/config.json",
        history=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/history.csv",
        result=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/training.json",
        kept=directory(f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/kept"),
    log:
        f"{ROOT}/{{scale}}/logs/pretrain/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/pretrain/{{run}}/{{seed}}.tsv"
    wildcard_constraints:
        run=PLAN.trained_by("pretrain"),
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


rule extend_context:
    input:
        model=get_parent_result,
        weights=get_parent_weights,
        data=get_training_data,
    output:
        model=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/model.safetensors",
        config=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/config.json",
        history=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/history.csv",
        result=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/training.json",
        kept=directory(f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/kept"),
    log:
        f"{ROOT}/{{scale}}/logs/extend_context/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/extend_context/{{run}}/{{seed}}.tsv"
    wildcard_constraints:
        run=PLAN.trained_by("extend_context"),
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.gpus(wildcards.run),
    params:
        root=lambda wildcards: ROOT,
        cfg=get_run_slice,
        code=lambda wildcards: PLAN.code("extend_context", wildcards.run),
    message:
        "Extend {wildcards.run}, seed {wildcards.seed}"
    shell:
        "difftransformer extend_context --slice {params.cfg} --code {params.code}"
        " --model {input.model} --dataset {input.data} --seed {wildcards.seed} --threads {threads}"
        " --output {output.result} --results {params.root} --log {log}"


rule continue_training:
    input:
        model=get_parent_result,
        weights=get_parent_weights,
        data=get_training_data,
    output:
        model=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/model.safetensors",
        config=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/config.json",
        history=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/history.csv",
        result=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/training.json",
        kept=directory(f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/kept"),
    log:
        f"{ROOT}/{{scale}}/logs/continue_training/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/continue_training/{{run}}/{{seed}}.tsv"
    wildcard_constraints:
        run=PLAN.trained_by("continue_training"),
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.gpus(wildcards.run),
    params:
        root=lambda wildcards: ROOT,
        cfg=get_run_slice,
        code=lambda wildcards: PLAN.code("continue_training", wildcards.run),
    message:
        "Continue {wildcards.run}, seed {wildcards.seed}"
    shell:
        "difftransformer continue_training --slice {params.cfg} --code {params.code}"
        " --model {input.model} --dataset {input.data} --seed {wildcards.seed} --threads {threads}"
        " --output {output.result} --results {params.root} --log {log}"
