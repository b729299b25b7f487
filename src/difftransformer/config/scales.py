"""Effects of a scale on other files: runs it adds, rows it replaces, and checks of its entries."""

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
"""Keys that a run inherits from its nearest base that sets them. `overrides` are merged."""
Proxies = Mapping[str, Mapping[str, str | None]]
"""Artifact -> run in its rows -> run shown in its place (proxy); None leaves the row out.

An artifact names the models that the paper shows. A scale may show other runs instead: a small
scale trains no 3B model, and a large one retrieves needles in English, not in the words of a
generated corpus. The artifact and its claims stay the same.
"""

# --- runs added to those of runs.yaml: changed and new ones of a scale, size grids, sweeps


def scale_runs(runs: Runs, scale: ScaleConfig, scale_file: str) -> dict[str, RunEntry]:
    """Return the entries of the runs that a scale changes or adds, by name."""
    entries = {}
    for name, changes in scale.runs.items():
        location, layers = f"{scale_file}: runs.{name}", Layers()
        if name in runs:
            layers.add(runs[name].model_dump(exclude_unset=True), f"runs.yaml: runs.{name}")
        layers.add(changes, location)
        entries[name] = validate(RunEntry, layers.values, location, layers.origin)
    return entries


def inherited(runs: Runs, location: str) -> dict[str, RunEntry]:
    """Return the entries of all runs with inherited keys filled in; an explicit null is inherited.

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
    """Return the run whose tuned learning rate the run ``name`` uses; None: the recipe's rate.

    The result is the run itself, or its nearest base with the same recipe and adaptation method.

    Args:
        runs: All runs by name.
        rates: Tuned learning rates by run.
        name: Name of the run.
        recipe: Training recipe of the run.
        location: File and key of the runs, for error messages.
    """

    def method(run: str) -> Any:
        return (runs[run].adapt or {}).get("method")

    for ancestor in reversed(ancestry(runs, name, location)):
        alike = runs[ancestor].recipe == recipe and method(ancestor) == method(name)
        if ancestor in rates and (ancestor == name or alike):
            return ancestor
    return None


def members(runs: Runs, run: str, recipes: Sequence[str]) -> dict[str, str]:
    """Return the runs that represent ``run`` at every recipe of a size grid, with their recipes.

    A run in runs.yaml that differs from ``run`` only in its recipe is used, so that no run is
    trained twice.
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
    """Return the entries of the runs that size grids add, by name.

    Args:
        runs: All runs by name.
        artifacts: All artifacts by name.
        scale: The scale in use.
        file: Path of the scale's YAML file, for error messages.
        folder: Folder of the artifacts, for error messages.

    Raises:
        ConfigError: A size grid, recipe or run is unknown; the message offers the nearest name.
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
    """Return the entries of one run per learning rate of every sweep, by name."""
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
    """Return the name of the sweep's run that trains ``run`` at its ``index``-th learning rate."""
    return f"sweep_{run}_{index}"


# --- artifact rows that a scale replaces or leaves out


def with_proxies(
    proxies: Proxies, artifacts: Mapping[str, ArtifactConfig], runs: Runs, location: str
) -> dict[str, ArtifactConfig]:
    """Return all artifacts by name, with rows replaced by a scale's proxies or left out.

    Raises:
        ConfigError: A name is unknown, with key path and nearest name; or a section of an artifact
            has no rows left, or shows a run twice.
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
    """Return all claims by id, with the runs of their tables replaced by a scale's proxies."""
    return {
        name: claim.on_proxies(proxies.get(claim.artifact, {})) for name, claim in claims.items()
    }


def not_testable(reasons: Mapping[str, str], claim: str, artifact: str) -> str | None:
    """Return the reason why a scale cannot test a claim, or None if it can.

    Args:
        reasons: Reasons by claim, by artifact, or for `all`.
        claim: Id of the claim.
        artifact: Artifact of the claim.
    """
    return next((reasons[key] for key in (claim, artifact, "all") if key in reasons), None)


def _replaced(artifact: ArtifactConfig, runs: Mapping[str, str | None]) -> ArtifactConfig:
    """Return the artifact with the rows replaced; the published values are kept."""
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


# --- a pretrained model in place of the base model of adaptations


def adapt_pretrained(
    base: PretrainedBase, runs: Runs, artifacts: Mapping[str, ArtifactConfig], location: str
) -> tuple[dict[str, RunEntry], dict[str, ArtifactConfig]]:
    """Return runs and artifacts in which adaptations start from the given pretrained model.

    Args:
        base: The pretrained model, which is added as a run.
        runs: All runs by name; the runs with `adapt` get the model as `init_from`.
        artifacts: All artifacts by name; those that show adaptations show the model as their base.
        location: File and key of the runs, for error messages.
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


# --- checks of each entry on its own, even if it is unused or overridden


def check_entries(
    scale: ScaleConfig, file: str, runs: Runs, runs_file: str, datasets: Entries, suites: Entries
) -> None:
    """Check all recipes and overrides key by key, and the names that a scale refers to.

    Each entry is checked on its own, since an override could otherwise hide an error.

    Args:
        scale: The scale.
        file: Path of the scale's YAML file, for error messages.
        runs: All runs by name.
        runs_file: Path of runs.yaml, for error messages.
        datasets: All datasets by name.
        suites: All suites by name.

    Raises:
        ConfigError: A name or key is unknown, or a value has a wrong type or size.
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
