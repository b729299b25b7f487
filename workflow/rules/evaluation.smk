# Contract: needs a trained run and its dataset, or a pretrained model; makes
# {ROOT}/{scale}/evaluations/{suite}/{run}/{seed}.json and, in {seed}/, its items and arrays, among them the
# answers that judges read; judging makes {ROOT}/{scale}/judgments/{judge}/{suite}/{run}/...


rule evaluate:
    input:
        unpack(evaluation_inputs),
    output:
        directory(LAYOUT.details("{suite}", "{run}", "{seed}")),
        result=LAYOUT.evaluation("{suite}", "{run}", "{seed}"),
    log:
        LAYOUT.log("evaluate", "{suite}", "{run}", "{seed}"),
    benchmark:
        LAYOUT.benchmark("evaluate", "{suite}", "{run}", "{seed}")
    threads: 1
    resources:
        gpu=lambda wildcards: JOBS.gpus(wildcards.run, wildcards.suite) or None,
    params:
        rule="evaluate",
        config=lambda wildcards: JOBS.evaluation_config_file(
            wildcards.suite, wildcards.run
        ),
        code=lambda wildcards: JOBS.code(
            "evaluate", wildcards.suite, wildcards.run, seed=int(wildcards.seed)
        ),
        files=files,
    message:
        "Evaluate {wildcards.suite} on {wildcards.run}, seed {wildcards.seed}"
    shell:
        STEP


rule judge_answers:
    input:
        answers=LAYOUT.details("{suite}", "{run}", "{seed}"),
        result=LAYOUT.evaluation("{suite}", "{run}", "{seed}"),
    output:
        directory(LAYOUT.judgment_details("{judge}", "{suite}", "{run}", "{seed}")),
        result=LAYOUT.judgment("{judge}", "{suite}", "{run}", "{seed}"),
    log:
        LAYOUT.log("judge_answers", "{judge}", "{suite}", "{run}", "{seed}"),
    benchmark:
        LAYOUT.benchmark("judge_answers", "{judge}", "{suite}", "{run}", "{seed}")
    params:
        rule="judge_answers",
        config=lambda wildcards: JOBS.judgment_config_file(
            wildcards.judge, wildcards.suite, wildcards.run
        ),
        code=lambda wildcards: JOBS.code(
            "judge_answers", wildcards.judge, wildcards.suite
        ),
        files=files,
    message:
        "Judge {wildcards.suite} of {wildcards.run}, seed {wildcards.seed}, by {wildcards.judge}"
    shell:
        STEP
