# Contract: makes {ROOT}/mlflow/ready, the tracking store. Jobs do not wait for it: they track locally.


rule initialise_tracking:
    """Create the MLflow store; jobs do not wait for it"""
    output:
        f"{ROOT}/mlflow/ready",
    log:
        f"{ROOT}/logs/initialise_tracking.log",
    conda:
        ENVIRONMENT
    params:
        root=lambda wildcards: ROOT,
    message:
        "Create the tracking store"
    shell:
        "difftransformer initialise_tracking --output {output} --results {params.root} --log {log}"
