# Contract: PLAN names what can be built. One target rule for each table, figure and ablation, with the
# description that its file gives it, and one for each group: all, the sweeps, each
# paper; the Snakefile has what a bare call builds. Every target makes the report on what is asked for.

DESCRIPTIONS = {
    "all": "Build every table and figure of this scale but the sweeps, and the report",
    "sweeps": "Build the sweeps by which the learning rates were chosen, and the report",
}
DESCRIPTIONS |= {
    name: f"Build every table and figure of: {paper.title}"
    for name, paper in PLAN.resolver.papers.papers.items()
    if name in PLAN.groups
}
DESCRIPTIONS |= {
    name: artifact.description for name, artifact in ARTIFACTS.available.items()
}

set_targets(["default_targets", *DESCRIPTIONS], PLAN.other_scales(), PLAN.lacking())

for _name, _description in DESCRIPTIONS.items():

    rule:
        name:
            _name
        input:
            PLAN.built_for(PLAN.requested_artifacts([_name])),

    getattr(rules, _name).rule.docstring = _description
