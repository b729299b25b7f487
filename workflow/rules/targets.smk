# Contract: PLAN names what can be built. One target rule for each table, figure and ablation, with the
# description that artifacts.yaml gives it, and one for each paper. What a bare call builds stands in
# the Snakefile.


rule all:
    """Build every table and figure of this scale, and the report"""
    input:
        PLAN.targets(list(PLAN.artifacts)),
        PLAN.layout.report,


for _name, _paper in PLAN.catalogue.papers.papers.items():

    rule:
        name:
            _name
        input:
            PLAN.targets(PLAN.groups[_name]),
            PLAN.layout.report,

    getattr(rules, _name).rule.docstring = (
        f"Build every table and figure of: {_paper.title}"
    )


for _name, _artifact in PLAN.artifacts.items():

    rule:
        name:
            _name
        input:
            PLAN.targets([_name]),

    getattr(rules, _name).rule.docstring = _artifact.description
