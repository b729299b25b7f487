# Contract: needs a trained run and its dataset, or a model from elsewhere; makes
# {ROOT}/{scale}/evaluations/{suite}/{run}/{seed}.json and, in {seed}/, what stands behind it. Answers
# that are to be judged lie there; judging makes {ROOT}/{scale}/judgements/{judge}/{suite}/{run}/...


rule evaluate:
    input:
        unpack(evaluation_inputs),
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
        rule="evaluate",
        config=lambda wildcards: JOBS.evaluation_slice(wildcards.suite, wildcards.run),
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
        rule="judge_answers",
        config=lambda wildcards: JOBS.judgement_slice(
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
