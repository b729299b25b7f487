# Contract: needs a packed dataset, and for a run that continues another one (other text, longer
# positions) or adapts it (Dex, LoRA, ...) the finished training of the same seed that `init_from` names; makes
# {ROOT}/{scale}/runs/{run}/{seed}/: weights, config, history.csv, in kept/ weights of earlier steps and, last, as
# it goes into storage, too, training.json. Checkpoints live in {ROOT}/{scale}/state, outside the outputs, so a
# killed job continues from its newest whole one.


rule pretrain:
    input:
        unpack(training_inputs),
    output:
        model=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/model.safetensors",
        config=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/config.json",
        source=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/modeling_difftransformer.py",
        tokenizer=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/tokenizer.json",
        description=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/tokenizer_config.json",
        history=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/history.csv",
        kept=directory(f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/kept"),
        result=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/training.json",
    log:
        f"{ROOT}/{{scale}}/logs/pretrain/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/pretrain/{{run}}/{{seed}}.tsv"
    wildcard_constraints:
        run=any_of(JOBS.trained_by("pretrain")),
    threads: 1
    resources:
        gpu=lambda wildcards: JOBS.gpus(wildcards.run) or None,
        mem_mb=lambda wildcards: JOBS.host_mb(wildcards.run),
    params:
        rule="pretrain",
        config=run_config,
        code=lambda wildcards: JOBS.code(
            JOBS.stage(wildcards.run), wildcards.run, seed=int(wildcards.seed)
        ),
        files=files,
    message:
        "Train {wildcards.run}, seed {wildcards.seed}"
    shell:
        STEP


use rule pretrain as extend_context with:
    log:
        f"{ROOT}/{{scale}}/logs/extend_context/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/extend_context/{{run}}/{{seed}}.tsv"
    wildcard_constraints:
        run=any_of(JOBS.trained_by("extend_context")),
    params:
        rule="extend_context",
    message:
        "Extend the context of {wildcards.run}, seed {wildcards.seed}"


use rule pretrain as adapt with:
    output:
        model=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/model.safetensors",
        config=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/config.json",
        tokenizer=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/tokenizer.json",
        description=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/tokenizer_config.json",
        adapter=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/adapter.safetensors",
        history=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/history.csv",
        kept=directory(f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/kept"),
        result=f"{ROOT}/{{scale}}/runs/{{run}}/{{seed}}/training.json",
    log:
        f"{ROOT}/{{scale}}/logs/adapt/{{run}}/{{seed}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/adapt/{{run}}/{{seed}}.tsv"
    wildcard_constraints:
        run=any_of(JOBS.trained_by("adapt")),
    params:
        rule="adapt",
    message:
        "Adapt {wildcards.run}, seed {wildcards.seed}"
