"""What a scale makes of the other files: the runs it adds, the rows it replaces, and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from difftransformer.config.artifacts import ArtifactConfig, SectionConfig
from difftransformer.config.inheritance import Layers, ancestry
from difftransformer.config.pretrained import PretrainedBase
from difftransformer.config.project import RunEntry
from difftransformer.config.registry import Claim
from difftransformer.config.run import PRETRAINED_BASE, PretrainedOptions, check_settings
from difftransformer.config.scale import ScaleConfig
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError, lookup, nearest

Entries = Mapping[str, object]
Runs = Mapping[str, RunEntry]
INHERITED = {"recipe", "init_from", "adapt", "color", "match"}
"""Keys that a run inherits from its nearest base; `overrides` are merged key by key."""
Proxies = Mapping[str, Mapping[str, str | None]]
"""Artifact -> run of its rows -> run that stands in for it; None leaves the row out.

An artifact names the models that the paper shows. A small scale trains no 3B model for them, and a
large one asks for needles in English, not in the words of a generated corpus: the artifact and the
claims on it stay the same, and a scale says which of its runs stand in for the rows.
"""

# --- runs that it adds to those of runs.yaml: changed ones, its own, those of size_grids and sweeps


def scale_runs(runs: Runs, scale: ScaleConfig, scale_file: str) -> dict[str, RunEntry]:
    """Return the runs that a scale changes or adds, by name."""
    entries = {}
    for name, changes in scale.runs.items():
        location, layers = f"{scale_file}: runs.{name}", Layers()
        if name in runs:
            layers.add(runs[name].model_dump(exclude_unset=True), f"runs.yaml: runs.{name}")
        layers.add(changes, location)
        entries[name] = validate(RunEntry, layers.values, location, layers.origin)
    return entries


def inherited(runs: Runs, location: str) -> dict[str, RunEntry]:
    """Return the runs with inherited keys filled in; an explicit null is inherited, too.

    Raises:
        ConfigError: A base is unknown, or the bases form a circle.
    """
    entries = {}
    for name, entry in runs.items():
        chain = ancestry(runs, name, location).values()
        values = {
            key: getattr(ancestor, key)
            for ancestor in chain
            for key in INHERITED & ancestor.model_fields_set
        }
        entries[name] = entry.model_copy(update=values)
    return entries


def tuned_as(
    runs: Runs, rates: Mapping[str, float], name: str, recipe: str, location: str
) -> str | None:
    """Return the run whose tuned learning rate applies; None: the recipe's applies.

    That is the run itself, or its nearest base with the same recipe and adaptation method.
    """

    def method(run: str) -> Any:
        return (runs[run].adapt or {}).get("method")

    for ancestor in reversed(ancestry(runs, name, location)):
        alike = runs[ancestor].recipe == recipe and method(ancestor) == method(name)
        if ancestor in rates and (ancestor == name or alike):
            return ancestor
    return None


def members(runs: Runs, run: str, recipes: Sequence[str]) -> dict[str, str]:
    """Return run id -> recipe for a run at every recipe of a size grid.

    Runs of runs.yaml that differ from it only in their recipe are used, so nothing trains twice.
    """
    base_entry = runs[run]
    named = {
        entry.recipe: name
        for name, entry in reversed(list(runs.items()))
        if entry.base == run and entry.differs_only_in_recipe(base_entry)
    }
    return {
        run if recipe == base_entry.recipe else named.get(recipe, f"{run}_{recipe}"): recipe
        for recipe in recipes
    }


def size_grid_runs(
    runs: Runs, artifacts: Mapping[str, ArtifactConfig], scale: ScaleConfig, file: str, folder: str
) -> dict[str, RunEntry]:
    """Return the runs that size grids add.

    ``file`` is the scale's and ``folder`` that of the artifacts, for errors.

    Raises:
        ConfigError: an unknown size grid, recipe or run; offers the nearest name.
    """
    added: dict[str, RunEntry] = {}
    sections = [(name, part) for name, artifact in artifacts.items() for part in artifact.sections]
    for name, part in sections:
        if part.size_grid is None:
            continue
        artifact_location, location = (
            f"{folder}/{name}.yaml",
            f"{file}: size_grids.{part.size_grid}",
        )
        recipes = lookup(scale.size_grids, part.size_grid, "size grid", f"{file}: size_grids")
        try:
            part.typed_options.check_size_grid(recipes)
        except ValueError as error:
            raise ConfigError(f"{location}: {error}") from None
        for recipe in recipes:
            lookup(scale.recipes, recipe, "recipe", location)
        for row in part.rows:
            entry = lookup(runs, row.run, "run", artifact_location)
            for member, recipe in members(runs, row.run, recipes).items():
                if member not in runs:
                    label = f"{entry.label}, {recipe}"
                    added[member] = RunEntry(base=row.run, recipe=recipe, label=label)
    return added


def sweep_runs(runs: Runs, scale: ScaleConfig, scale_file: str) -> dict[str, RunEntry]:
    """Return a run per learning rate of every sweep."""
    expanded: dict[str, RunEntry] = {}
    grids: dict[str, list[float]] = {}
    for name, rates in (grid for sweep in scale.sweeps.values() for grid in sweep.rates().items()):
        if grids.setdefault(name, rates) != rates:
            raise ConfigError(
                f"{scale_file}: sweeps: {name} has the rates {grids[name]} in one and {rates} in "
                "another; a run has one grid"
            )
        label = lookup(runs, name, "run", f"{scale_file}: sweeps").label
        for index, rate in enumerate(rates):
            changes = {"training": {"lr": rate}}
            run = RunEntry(base=name, label=f"{label}, lr {rate:g}", overrides=changes)
            expanded[sweep_run(name, index)] = run
    return expanded


def sweep_run(run: str, index: int) -> str:
    """Return the id of the sweep's run of ``run`` at its ``index``-th learning rate."""
    return f"sweep_{run}_{index}"


# --- rows that show another run at a scale, or are left out of it


def with_proxies(
    proxies: Proxies, artifacts: Mapping[str, ArtifactConfig], runs: Runs, location: str
) -> dict[str, ArtifactConfig]:
    """Return all artifacts with their rows replaced by proxies.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest one; or with the
            artifact of which a section is left without rows or shows a run twice.
    """
    replaced = dict(artifacts)
    for name, rows in proxies.items():
        artifact = lookup(artifacts, name, "artifact", f"{location}: proxies")
        row_runs, artifact_location = artifact.runs(), f"{location}: proxies.{name}"
        for run, other in rows.items():
            if run not in row_runs:
                raise ConfigError(
                    f"{artifact_location}: '{run}' is none of its rows{nearest(run, row_runs)}"
                )
            if other is not None:
                lookup(runs, other, "run", f"{artifact_location}.{run}")
        replaced[name] = _replaced(artifact, rows)
        for part in replaced[name].sections:
            left = [row.run for row in part.rows]
            if not left or len(set(left)) < len(left):
                problem = "no rows are left" if not left else f"a run stands twice among {left}"
                raise ConfigError(f"{artifact_location}: section '{part.title}': {problem}")
    return replaced


def claims_on_proxies(proxies: Proxies, claims: Mapping[str, Claim]) -> dict[str, Claim]:
    """Return all claims on the proxies of their tables."""
    return {
        name: claim.on_proxies(proxies.get(claim.artifact, {})) for name, claim in claims.items()
    }


def not_testable(reasons: Mapping[str, str], claim: str, artifact: str) -> str | None:
    """Return the reason why a scale cannot test a claim; None: it can."""
    return next((reasons[key] for key in (claim, artifact, "all") if key in reasons), None)


def _replaced(artifact: ArtifactConfig, runs: Mapping[str, str | None]) -> ArtifactConfig:
    """Return the artifact with the rows replaced; published values stay."""
    if not runs:
        return artifact
    changes = {
        "sections": [_section(part, runs) for part in artifact.sections],
        "owned_runs": [other for run in artifact.owned_runs if (other := runs.get(run, run))],
    }
    return artifact.model_copy(update=changes)


def _section(part: SectionConfig, runs: Mapping[str, str | None]) -> SectionConfig:
    rows = [
        row.model_copy(
            update={
                "run": other,
                "paper": row.paper or row.run,
                "baseline": runs.get(row.baseline or "", row.baseline),
                "paired_run": runs.get(row.paired_run or "", row.paired_run),
            }
        )
        for row in part.rows
        if (other := runs.get(row.run, row.run)) is not None
    ]
    baseline = runs.get(part.baseline or "", part.baseline)
    return part.model_copy(update={"rows": rows, "baseline": baseline})


# --- a pretrained model in the place of the run that is adapted


def adapt_pretrained(
    base: PretrainedBase, runs: Runs, artifacts: Mapping[str, ArtifactConfig], location: str
) -> tuple[dict[str, RunEntry], dict[str, ArtifactConfig]]:
    """Let adaptations start from a pretrained model, and show it in place of their base.

    Args:
        base: The model, which becomes a run.
        runs: All runs; those with `adapt` come back with another `init_from`.
        artifacts: All artifacts; in those with adapted rows the base's rows show the model.
        location: File and section of the runs, for errors.
    """
    options = {name: getattr(base, name) for name in PretrainedOptions.model_fields}
    itself = RunEntry(label=base.display_name, color=0, pretrained=base.name, **options)
    changed, bases = {**runs, PRETRAINED_BASE: itself}, set()
    for name, entry in runs.items():
        if entry.adapt is not None and entry.init_from is not None:
            bases.add(entry.init_from)
            changed[name] = entry.model_copy(update={"init_from": PRETRAINED_BASE})
    entries = inherited(runs, location).items()
    adapted = {name for name, entry in entries if entry.adapt is not None}
    changed_artifacts = {
        name: _replaced(artifact, dict.fromkeys(bases, PRETRAINED_BASE))
        if any(run in adapted for run in artifact.runs())
        else artifact
        for name, artifact in artifacts.items()
    }
    return changed, changed_artifacts


# --- what its entries and those of runs.yaml must be by themselves, used or overridden


def check_entries(
    scale: ScaleConfig, file: str, runs: Runs, runs_file: str, datasets: Entries, suites: Entries
) -> None:
    """Check recipes and overrides key by key, and the scale's references.

    A setting that overrides another must not hide its error. ``file`` is the scale's own, for
    errors.

    Raises:
        ConfigError: an unknown name or key, or a value of a wrong type or size.
    """
    for name, recipe in scale.recipes.items():
        values = recipe.model_dump(include={"model", "training"}, exclude_unset=True)
        check_settings(values, f"{file}: recipes.{name}")
    for name, entry in runs.items():
        owner = file if name in scale.runs else runs_file
        check_settings(entry.overrides, f"{owner}: runs.{name}.overrides")
    for key, noun, changed, entries in (
        ("datasets", "dataset", scale.datasets, datasets),
        ("suites", "suite", scale.suites, suites),
        ("learning_rates", "run", scale.learning_rates, runs),
    ):
        for name in changed:
            lookup(entries, name, noun, f"{file}: {key}")
