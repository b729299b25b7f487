# Contract: needs nothing; makes {ROOT}/{scale}/timings/{timing}.json, the timings of models on this machine, measured
# in new processes, one after the other. A benchmark by the wall clock takes all cores, so that no other job of the
# workflow disturbs it. The job is not forked from the warm process: it sets a variable that torch reads when imported.


rule benchmark:
    output:
        result=JOBS.layout.timings("{timing}"),
    log:
        JOBS.layout.log("benchmark", "{timing}"),
    threads: lambda wildcards: JOBS.timing_threads(wildcards.timing, CORES)
    resources:
        gpu=lambda wildcards: JOBS.timing_gpus(wildcards.timing) or None,
    params:
        rule="benchmark",
        config=lambda wildcards: ARTIFACTS.timing_file(wildcards.timing),
        code=lambda wildcards: ARTIFACTS.timing_code(wildcards.timing),
        files=files,
    message:
        "Measure the timings of {wildcards.timing}"
    shell:
        f"export DIFFTRANSFORMER_WARM=off; {STEP}"
