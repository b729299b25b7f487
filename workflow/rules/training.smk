# Contract: needs a packed dataset, and for a run that continues another one (other text, longer
# positions) or adapts it (Dex, LoRA, ...) the finished training of the same seed that `init_from` names; makes
# {ROOT}/{scale}/runs/{run}/{seed}/: weights, config, history.csv, in intermediate/ the weights of earlier steps and, last
# (in object storage, too), training.json. Checkpoints are in {ROOT}/{scale}/state, outside the outputs, so a killed
# job resumes from the last complete one.


rule pretrain:
    input:
        unpack(training_inputs),
    output:
        model=LAYOUT.weights("{run}", "{seed}"),
        config=LAYOUT.model("{run}", "{seed}", "config.json"),
        source=LAYOUT.model("{run}", "{seed}", "modeling_difftransformer.py"),
        tokenizer=LAYOUT.model("{run}", "{seed}", "tokenizer.json"),
        description=LAYOUT.model("{run}", "{seed}", "tokenizer_config.json"),
        history=LAYOUT.history("{run}", "{seed}"),
        intermediate=directory(LAYOUT.model("{run}", "{seed}", "intermediate")),
        result=LAYOUT.training("{run}", "{seed}"),
    log:
        LAYOUT.log("pretrain", "{run}", "{seed}"),
    benchmark:
        LAYOUT.benchmark("pretrain", "{run}", "{seed}")
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
        LAYOUT.log("extend_context", "{run}", "{seed}"),
    benchmark:
        LAYOUT.benchmark("extend_context", "{run}", "{seed}")
    wildcard_constraints:
        run=any_of(JOBS.trained_by("extend_context")),
    params:
        rule="extend_context",
    message:
        "Extend the context of {wildcards.run}, seed {wildcards.seed}"


use rule pretrain as adapt with:
    output:
        model=LAYOUT.weights("{run}", "{seed}"),
        config=LAYOUT.model("{run}", "{seed}", "config.json"),
        tokenizer=LAYOUT.model("{run}", "{seed}", "tokenizer.json"),
        description=LAYOUT.model("{run}", "{seed}", "tokenizer_config.json"),
        adapter=LAYOUT.model("{run}", "{seed}", "adapter.safetensors"),
        history=LAYOUT.history("{run}", "{seed}"),
        intermediate=directory(LAYOUT.model("{run}", "{seed}", "intermediate")),
        result=LAYOUT.training("{run}", "{seed}"),
    log:
        LAYOUT.log("adapt", "{run}", "{seed}"),
    benchmark:
        LAYOUT.benchmark("adapt", "{run}", "{seed}")
    wildcard_constraints:
        run=any_of(JOBS.trained_by("adapt")),
    params:
        rule="adapt",
    message:
        "Adapt {wildcards.run}, seed {wildcards.seed}"
