"""Check artifacts against the runs and the scale in use."""

from collections.abc import Iterable, Mapping

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.scale import ScaleConfig
from difftransformer.errors import ConfigError, lookup

Artifacts = Mapping[str, ArtifactConfig]


def check_artifacts(
    artifacts: Artifacts,
    labels: Mapping[str, str],
    claims: Iterable[str],
    scale: ScaleConfig,
    file: str,
    location: str,
) -> None:
    """Check a scale's references to artifacts and claims, and that row labels are unique.

    Args:
        artifacts: Artifacts by name, as in the YAML files, before the scale's proxies replace runs.
        labels: Run id -> label.
        claims: Ids of the registered claims.
        scale: The scale in use.
        file: Path of the scale's YAML file, for error messages.
        location: Folder of the artifacts' YAML files, for error messages.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest known one.
    """
    _check_scale(scale, artifacts, claims, file)
    _check_labels(artifacts, labels, location)


def _check_scale(
    scale: ScaleConfig, artifacts: Artifacts, claims: Iterable[str], file: str
) -> None:
    """Check the names in the scale's `seeds` and `not_testable`, and that reasons are not empty."""
    for name in scale.seeds:
        lookup(artifacts, name, "artifact", f"{file}: seeds")
        if untested := sorted(set(scale.listed_seeds(name)) & set(scale.exploratory_seeds)):
            raise ConfigError(
                f"{file}: seeds.{name}: {untested[0]} is one of the scale's exploratory_seeds, "
                "which test no claim; leave it out"
            )
    names: dict[str, object] = {"all": None, **artifacts, **dict.fromkeys(claims)}
    for name, reason in scale.not_testable.items():
        lookup(names, name, "claim or artifact", f"{file}: not_testable")
        if not reason.strip():
            raise ConfigError(f"{file}: not_testable.{name}: say why, the report shows it")


def _check_labels(artifacts: Artifacts, labels: Mapping[str, str], location: str) -> None:
    """Check that no two rows of a section have the same label and paired run."""
    sections = [
        (name, *index_and_section)
        for name in artifacts
        for index_and_section in enumerate(artifacts[name].sections)
    ]
    for name, index, part in sections:
        runs_by_label: dict[tuple[str | None, str | None], str] = {}
        for number, row in enumerate(part.rows):
            label = row.label or labels.get(row.run)  # another check reports an unknown run
            other = runs_by_label.setdefault((label, row.paired_run), row.run)
            if label is not None and other != row.run and not part.typed_options.swept:
                raise ConfigError(
                    f"{location}/{name}.yaml: sections[{index}].rows[{number}]: {row.run} is "
                    f"shown as '{label}', as {other} is; give one of them a `label`"
                )
