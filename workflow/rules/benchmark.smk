# Contract: needs nothing; makes {ROOT}/{scale}/timings/{timing}.json, what a measurement times on the machine that it
# runs on, in several processes that it starts anew, one after the other. By the wall clock it takes all cores, so that no
# other job of the workflow disturbs it. It is started anew itself: it tells torch something before it is imported.


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
