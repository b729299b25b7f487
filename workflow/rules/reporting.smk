# Contract: needs result files and nothing else; makes {ROOT}/{scale}/tables/{artifact}.* ,
# {ROOT}/{scale}/figures/{artifact}.{svg,png} and {ROOT}/{scale}/report, a small site on what is asked for and
# on what earlier calls have built, whose digests beside it are written last.


# Where jobs run elsewhere, the head does these: no command line there says what was asked for, and each
# takes seconds, less than a job's way through a queue.
localrules:
    table,
    figure,
    verdicts,
    report,


rule table:
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
        f"{ROOT}/{{scale}}/logs/table/{{artifact}}.log",
    params:
        root=lambda wildcards: ROOT,
        cfg=get_table_slice,
        code=lambda wildcards: ARTIFACTS.code("table", wildcards.artifact),
    message:
        "Build the table {wildcards.artifact}"
    shell:
        "difftransformer table --slice {params.cfg} --code {params.code}"
        " --inputs '{input.results}' --output {output.page} --results {params.root} --log {log}"


rule figure:
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
        f"{ROOT}/{{scale}}/logs/figure/{{artifact}}.log",
    params:
        root=lambda wildcards: ROOT,
        cfg=get_figure_slice,
        code=lambda wildcards: ARTIFACTS.code("figure", wildcards.artifact),
    message:
        "Draw the figure {wildcards.artifact}"
    shell:
        "difftransformer figure --slice {params.cfg} --code {params.code}"
        " --inputs '{input.results}' --output {output.picture} --results {params.root} --log {log}"


rule verdicts:
    """Test the registered claims that what is asked for beside it answers"""
    input:
        results=lambda wildcards: PLAN.results(PLAN.claims.answering(get_asked())),
        histories=lambda wildcards: PLAN.histories(PLAN.claims.answering(get_asked())),
    output:
        multiext(JOBS.layout.verdicts.removesuffix(".json"), ".csv", ".md"),
        data=JOBS.layout.verdicts,
    log:
        f"{ROOT}/{JOBS.scale}/logs/verdicts.log",
    params:
        cfg=lambda wildcards: PLAN.verdicts_slice(get_asked()),
        code=PLAN.claims.code(),
    message:
        "Test the claims"
    shell:
        "difftransformer verdicts --slice {params.cfg} --inputs '{input.results}'"
        " --output {output.data} --log {log}"


rule report:
    """Build the report alone, on what is asked for beside it and what is built"""
    input:
        tables=lambda wildcards: PLAN.tables(get_asked()),
        figures=lambda wildcards: PLAN.figures(get_asked()),
        sums=lambda wildcards: get_sums(PLAN.figures(get_asked())),
        verdicts=JOBS.layout.verdicts,
        results=lambda wildcards: PLAN.results(get_asked()),
        histories=lambda wildcards: PLAN.histories(get_asked()),
        maps=lambda wildcards: PLAN.browsed(get_asked()),
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
        f"{ROOT}/{JOBS.scale}/logs/report.log",
    params:
        cfg=lambda wildcards: PLAN.report_slice(get_asked()),
        code=PLAN.report_code(),
    message:
        "Write the report"
    shell:
        "difftransformer report --slice {params.cfg} --inputs '{input.results}'"
        " --tables '{input.tables}' --figures '{input.figures}' --verdicts {input.verdicts}"
        " --output {output.site}/index.html --log {log}"


# What these refuse no second try mends; of the directive `retries` Snakemake takes a 0 for nothing said.
for _name in ("table", "figure", "verdicts", "report"):
    getattr(rules, _name).rule.restart_times = 0
