# Contract: needs result files and nothing else; makes {ROOT}/{scale}/tables/{artifact}.{csv,md,tex,html},
# {ROOT}/{scale}/figures/{artifact}.{svg,png} and {ROOT}/{scale}/report/index.html.


rule build_table:
    input:
        get_results,
    output:
        report(
            f"{ROOT}/{{scale}}/tables/{{artifact}}.html",
            caption="../report/table.rst",
            category="Tables",
            labels={"artifact": "{artifact}", "scale": "{scale}"},
        ),
        multiext(f"{ROOT}/{{scale}}/tables/{{artifact}}", ".csv", ".md", ".tex"),
    params:
        cfg=get_artifact_slice,
        code=lambda wildcards: PLAN.code("build_table", wildcards.artifact),
    log:
        f"{ROOT}/{{scale}}/logs/build_table/{{artifact}}.log",
    conda:
        ENVIRONMENT
    message:
        "Build the table {wildcards.artifact}"
    shell:
        "difftransformer build_table --slice {params.cfg} --code {params.code}"
        " --results '{input}' --output {output[0]} --log {log}"


rule build_figure:
    input:
        get_results,
    output:
        report(
            f"{ROOT}/{{scale}}/figures/{{artifact}}.svg",
            caption="../report/figure.rst",
            category="Figures",
            labels={"artifact": "{artifact}", "scale": "{scale}"},
        ),
        f"{ROOT}/{{scale}}/figures/{{artifact}}.png",
    params:
        cfg=get_artifact_slice,
        code=lambda wildcards: PLAN.code("build_figure", wildcards.artifact),
    log:
        f"{ROOT}/{{scale}}/logs/build_figure/{{artifact}}.log",
    conda:
        ENVIRONMENT
    message:
        "Draw the figure {wildcards.artifact}"
    shell:
        "difftransformer build_figure --slice {params.cfg} --code {params.code}"
        " --results '{input}' --output {output[0]} --log {log}"
