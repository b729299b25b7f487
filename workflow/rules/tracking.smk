# Contract: makes {ROOT}/mlflow/ready when it is asked for. No job needs it: jobs track locally, and the
# first that sends makes the store.


rule initialise_tracking:
    """Create the MLflow store now, to see that it can be had; no job waits for it"""
    output:
        f"{ROOT}/mlflow/ready",
    log:
        f"{ROOT}/logs/initialise_tracking.log",
    params:
        root=lambda wildcards: ROOT,
    message:
        "Create the tracking store"
    shell:
        "difftransformer initialise_tracking --output {output} --results {params.root} --log {log}"
