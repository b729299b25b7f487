# Contract: PLAN names what can be built. One target rule for each table, figure and ablation, with the
# description that artifacts.yaml gives it, and one for each paper. What a bare call builds stands in
# the Snakefile.


rule all:
    """Build every table and figure of this scale but the sweeps, and the report"""
    input:
        PLAN.targets(PLAN.groups["all"]),
        PLAN.layout.report,


rule sweeps:
    """Build the sweeps by which the learning rates were chosen, and the report"""
    input:
        PLAN.targets(PLAN.groups["sweeps"]),
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
