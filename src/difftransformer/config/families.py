"""Families: the rows of an artifact trained at several setups of a scale, such as its sizes."""

from collections.abc import Mapping, Sequence

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.inheritance import ancestry
from difftransformer.config.project import RunEntry, ScaleConfig
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError


def setup_of(runs: Mapping[str, RunEntry], name: str, where: str) -> str | None:
    """Return the setup of a run: its own, or that of its nearest base with one.

    Raises:
        ConfigError: a base is unknown, or the bases form a circle.
    """
    chain = reversed(ancestry(runs, name, where))
    return next((entry.setup for entry in chain if entry.setup), None)


def members(
    runs: Mapping[str, RunEntry], run: str, setups: Sequence[str], where: str
) -> dict[str, str]:
    """Return run id -> setup of a run at every setup of a family, in their order.

    At its own setup a run is itself, so nothing is trained twice.
    """
    own = setup_of(runs, run, where)
    return {run if setup == own else f"{run}_{setup}": setup for setup in setups}


def family_runs(
    runs: Mapping[str, RunEntry], artifacts: Mapping[str, ArtifactConfig], scale: ScaleConfig,
    scale_file: str, artifacts_file: str,
) -> dict[str, RunEntry]:  # fmt: skip
    """Return the runs that the families of all artifacts add to those of runs.yaml.

    Raises:
        ConfigError: an unknown family, setup or run; offers the nearest name.
    """
    added: dict[str, RunEntry] = {}
    for name, artifact in artifacts.items():
        where = f"{artifacts_file}: artifacts.{name}"
        for part in artifact.sections:
            if part.family is None:
                continue
            setups = lookup(scale.families, part.family, "family", f"{scale_file}: families")
            if part.measures == "size_scaling" and len(set(setups)) < 2:
                raise ConfigError(
                    f"{scale_file}: families.{part.family}: a curve needs two sizes or more, got "
                    f"{setups}"
                )
            for setup in setups:
                lookup(scale.setups, setup, "setup", f"{scale_file}: families.{part.family}")
            for row in part.rows:
                entry = lookup(runs, row.run, "run", where)
                for member, setup in members(runs, row.run, setups, where).items():
                    if member != row.run:
                        added[member] = RunEntry(
                            base=row.run, setup=setup, label=f"{entry.label}, {setup}"
                        )
    return added
