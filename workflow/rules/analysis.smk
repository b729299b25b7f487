# Contract: needs nothing; makes {ROOT}/{scale}/throughput.json and decoding.json, timings of the machine that it runs
# on. Takes all cores, so that no other job of the workflow disturbs them.


rule measure_throughput:
    output:
        PLAN.layout.throughput,
    log:
        f"{ROOT}/{PLAN.scale}/logs/measure_throughput.log",
    conda:
        ENVIRONMENT
    threads: lambda wildcards: workflow.cores or 1
    resources:
        gpu=PLAN.throughput_gpus(),
    params:
        root=lambda wildcards: ROOT,
        cfg=lambda wildcards: PLAN.throughput_slice(),
        code=lambda wildcards: PLAN.code("measure_throughput"),
    message:
        "Measure throughput"
    shell:
        "difftransformer measure_throughput --slice {params.cfg} --code {params.code}"
        " --threads {threads} --output {output} --results {params.root} --log {log}"


rule measure_decoding:
    output:
        PLAN.layout.decoding,
    log:
        f"{ROOT}/{PLAN.scale}/logs/measure_decoding.log",
    conda:
        ENVIRONMENT
    threads: lambda wildcards: workflow.cores or 1
    resources:
        gpu=PLAN.decoding_gpus(),
    params:
        root=lambda wildcards: ROOT,
        cfg=lambda wildcards: PLAN.decoding_slice(),
        code=lambda wildcards: PLAN.code("measure_decoding"),
    message:
        "Measure decoding"
    shell:
        "difftransformer measure_decoding --slice {params.cfg} --code {params.code}"
        " --threads {threads} --output {output} --results {params.root} --log {log}"
