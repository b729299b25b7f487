# Contract: needs result files and nothing else; makes {ROOT}/{scale}/tables/{artifact}.* ,
# {ROOT}/{scale}/figures/{artifact}.{svg,png} and the page {ROOT}/{scale}/report/index.html.


rule build_table:
    input:
        results=get_results,
        histories=get_table_histories,
        judgements=get_judgements,
    output:
        multiext(
            f"{ROOT}/{{scale}}/tables/{{artifact}}", ".csv", ".md", ".tex", ".json"
        ),
        page=report(
            f"{ROOT}/{{scale}}/tables/{{artifact}}.html",
            caption="../report/table.rst",
            category="Tables",
            labels={"artifact": "{artifact}", "scale": "{scale}"},
        ),
    log:
        f"{ROOT}/{{scale}}/logs/build_table/{{artifact}}.log",
    conda:
        ENVIRONMENT
    params:
        root=lambda wildcards: ROOT,
        cfg=get_table_slice,
        code=lambda wildcards: PLAN.code("build_table", wildcards.artifact),
    message:
        "Build the table {wildcards.artifact}"
    shell:
        "difftransformer build_table --slice {params.cfg} --code {params.code}"
        " --inputs '{input.results}' --output {output.page} --results {params.root} --log {log}"


rule build_figure:
    input:
        results=get_results,
        histories=get_histories,
        details=get_details,
    output:
        multiext(f"{ROOT}/{{scale}}/figures/{{artifact}}", ".png", ".sha256.json"),
        picture=report(
            f"{ROOT}/{{scale}}/figures/{{artifact}}.svg",
            caption="../report/figure.rst",
            category="Figures",
            labels={"artifact": "{artifact}", "scale": "{scale}"},
        ),
    log:
        f"{ROOT}/{{scale}}/logs/build_figure/{{artifact}}.log",
    conda:
        ENVIRONMENT
    params:
        root=lambda wildcards: ROOT,
        cfg=get_figure_slice,
        code=lambda wildcards: PLAN.code("build_figure", wildcards.artifact),
    message:
        "Draw the figure {wildcards.artifact}"
    shell:
        "difftransformer build_figure --slice {params.cfg} --code {params.code}"
        " --inputs '{input.results}' --output {output.picture} --results {params.root} --log {log}"


rule build_report:
    """Build the report page alone, of what `report` in config.yaml names"""
    input:
        tables=PLAN.report_tables(),
        figures=PLAN.report_figures(),
        sums=get_sums(PLAN.report_figures()),
        results=PLAN.report_results(),
    output:
        report(
            PLAN.layout.report,
            caption="../report/report.rst",
            category="Report",
            labels={"artifact": "report", "scale": PLAN.scale},
        ),
    log:
        f"{ROOT}/{PLAN.scale}/logs/build_report.log",
    conda:
        ENVIRONMENT
    params:
        cfg=PLAN.report_slice(),
        code=PLAN.code("build_report"),
    message:
        "Write the report"
    shell:
        "difftransformer build_report --slice {params.cfg} --inputs '{input.results}'"
        " --tables '{input.tables}' --figures '{input.figures}' --output {output} --log {log}"
