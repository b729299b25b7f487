"""The runs that a scale adds to those of runs.yaml: changed ones, its own, and those of sweeps."""

from collections.abc import Mapping

from difftransformer.config.inheritance import Layers
from difftransformer.config.project import RunEntry, ScaleConfig, SweepEntry
from difftransformer.config.validation import lookup, validate


def scale_runs(
    runs: Mapping[str, RunEntry], scale: ScaleConfig, scale_file: str
) -> dict[str, RunEntry]:
    """Return the runs that a scale changes or adds."""
    found = {}
    for name, changes in scale.runs.items():
        layers = Layers()
        if name in runs:
            layers.add(runs[name].model_dump(exclude_unset=True), f"runs.yaml: runs.{name}")
        layers.add(changes, f"{scale_file}: runs.{name}")
        found[name] = validate(RunEntry, layers.values, f"{scale_file}: runs.{name}", layers.origin)
    return found


def sweep_runs(
    runs: Mapping[str, RunEntry], sweep: SweepEntry, scale_file: str
) -> dict[str, RunEntry]:
    """Return a run for each learning rate of a sweep's grids."""
    expanded = {}
    for name, rates in sweep.rates().items():
        entry = lookup(runs, name, "run", f"{scale_file}: sweeps")
        for index, rate in enumerate(rates):
            expanded[sweep_run(name, index)] = RunEntry(
                base=name,
                label=f"{entry.label}, lr {rate:g}",
                set={"training": {"lr": rate}},
            )
    return expanded


def sweep_run(run: str, index: int) -> str:
    """Return the id of the sweep's run of ``run`` at its ``index``-th learning rate."""
    return f"sweep_{run}_{index}"
