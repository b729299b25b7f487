# Contract: needs result files and nothing else; makes {ROOT}/{scale}/tables/{artifact}.* ,
# {ROOT}/{scale}/figures/{artifact}.{svg,png} and {ROOT}/{scale}/report, a small site about the requested
# artifacts and those of earlier calls. The digests of its pages are next to it and written last.


# Where jobs run elsewhere, the Snakemake process runs these itself: only its command line names the requested
# artifacts, and each rule takes seconds, less than a job waits in a queue. Their errors would recur, so retries are 0.
localrules:
    table,
    figure,
    verdicts,
    report,


rule table:
    input:
        results=lambda wildcards: ARTIFACTS.results(wildcards.artifact),
        histories=lambda wildcards: ARTIFACTS.table_histories(wildcards.artifact),
        judgments=lambda wildcards: ARTIFACTS.judgment_details(wildcards.artifact),
    output:
        multiext(LAYOUT.table("{artifact}"), ".csv", ".md", ".tex", ".json"),
        page=report(
            LAYOUT.table("{artifact}") + ".html",
            caption="../report/table.rst",
            category="Tables",
            labels={"artifact": "{artifact}", "scale": "{scale}"},
        ),
    log:
        LAYOUT.log("table", "{artifact}"),
    retries: 0
    params:
        rule="table",
        config=lambda wildcards: ARTIFACTS.config_file(wildcards.artifact, "table"),
        code=lambda wildcards: ARTIFACTS.code("table", wildcards.artifact),
        files=files,
    message:
        "Build the table {wildcards.artifact}"
    shell:
        STEP


use rule table as figure with:
    input:
        results=lambda wildcards: ARTIFACTS.results(wildcards.artifact),
        histories=lambda wildcards: ARTIFACTS.histories(wildcards.artifact),
        details=lambda wildcards: ARTIFACTS.details(wildcards.artifact),
    output:
        multiext(LAYOUT.figure("{artifact}"), ".png", ".sha256.json"),
        page=report(
            LAYOUT.figure("{artifact}") + ".svg",
            caption="../report/figure.rst",
            category="Figures",
            labels={"artifact": "{artifact}", "scale": "{scale}"},
        ),
    log:
        LAYOUT.log("figure", "{artifact}"),
    params:
        rule="figure",
        config=lambda wildcards: ARTIFACTS.config_file(wildcards.artifact, "figure"),
        code=lambda wildcards: ARTIFACTS.code("figure", wildcards.artifact),
    message:
        "Draw the figure {wildcards.artifact}"


rule verdicts:
    """Test the registered claims that the artifacts requested with it answer"""
    input:
        results=lambda wildcards: PLAN.results(PLAN.claims.answering(requested())),
        histories=lambda wildcards: PLAN.histories(PLAN.claims.answering(requested())),
    output:
        multiext(JOBS.layout.verdicts.removesuffix(".json"), ".csv", ".md"),
        data=JOBS.layout.verdicts,
    log:
        JOBS.layout.log("verdicts"),
    retries: 0
    params:
        rule="verdicts",
        config=lambda wildcards: PLAN.verdicts_config_file(requested()),
        code=PLAN.claims.code(),
        files=files,
    message:
        "Test the claims"
    shell:
        STEP


rule report:
    """Build the report alone, about the artifacts requested with it and those built before"""
    input:
        tables=lambda wildcards: PLAN.tables(requested()),
        figures=lambda wildcards: PLAN.figures(requested()),
        sums=lambda wildcards: PLAN.figures(requested(), ".sha256.json"),
        verdicts=JOBS.layout.verdicts,
        results=lambda wildcards: PLAN.results(requested()),
        histories=lambda wildcards: PLAN.histories(requested()),
        maps=lambda wildcards: PLAN.browsed(requested()),
    output:
        site=report(
            directory(JOBS.layout.report),
            htmlindex="index.html",
            caption="../report/report.rst",
            category="Report",
            labels={"artifact": "report", "scale": JOBS.scale},
        ),
        sums=JOBS.layout.report_sums,
    log:
        JOBS.layout.log("report"),
    retries: 0
    params:
        rule="report",
        config=lambda wildcards: PLAN.report_config_file(requested()),
        code=PLAN.report_code(),
        files=files,
    message:
        "Write the report"
    shell:
        STEP
