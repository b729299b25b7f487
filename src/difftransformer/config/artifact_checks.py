"""Whether artifacts fit the runs and the scale in use, beyond what each file says by itself."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.scale import ScaleConfig
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError

Artifacts = Mapping[str, ArtifactConfig]


def check_artifacts(
    artifacts: Artifacts,
    labels: Mapping[str, str],
    scale: ScaleConfig,
    files: Mapping[str, Path],
    used: str,
    place: str,
) -> None:
    """Check what the scale says of artifacts, what claims say of scales, and that rows differ.

    Args:
        artifacts: As they are written; what a scale makes of them may name several rows alike.
        labels: Run id -> label.
        scale: The scale in use.
        files: Scale -> its file.
        used: Name of the scale in use.
        place: The folder of the artifacts.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest one.
    """
    _check_scale(scale, artifacts, str(files[used]))
    _check_seen_seeds(artifacts, scale, files, used, place)
    _check_labels(artifacts, labels, place)


def _check_scale(scale: ScaleConfig, artifacts: Artifacts, place: str) -> None:
    """What has seeds or cannot be tested exists, and the latter has its reason."""
    for name in scale.seeds:
        lookup(artifacts, name, "artifact", f"{place}: seeds")
        if both := sorted(set(scale.listed_seeds(name)) & set(scale.spent_seeds)):
            raise ConfigError(
                f"{place}: seeds.{name}: {both[0]} judges no claim at this scale, by its "
                "spent_seeds; leave it out here"
            )
    known: dict[str, object] = {"all": None, **artifacts}
    known |= {
        claim: one for artifact in artifacts.values() for claim, one in artifact.claims.items()
    }
    for name, reason in scale.not_testable.items():
        lookup(known, name, "claim or artifact", f"{place}: not_testable")
        if not reason.strip():
            raise ConfigError(f"{place}: not_testable.{name}: say why, the report shows it")


def _check_seen_seeds(
    artifacts: Artifacts, scale: ScaleConfig, scales: Iterable[str], used: str, place: str
) -> None:
    """Seeds that do not judge a claim are those of a scale, and judge others."""
    known = dict.fromkeys(scales)
    for name, artifact in artifacts.items():
        for claim, one in artifact.claims.items():
            key = f"{place}/{name}.yaml: claims.{claim}.seen_seeds"
            for other in one.seen_seeds:
                lookup(known, other, "scale", key)
            if both := sorted(set(one.seen(used)) & set(scale.spent_seeds)):
                raise ConfigError(
                    f"{key}.{used}: {both[0]} judges no claim at this scale, by its spent_seeds; "
                    "leave it out here"
                )


def _check_labels(artifacts: Artifacts, labels: Mapping[str, str], place: str) -> None:
    """A reader can tell the rows of each section apart: by their labels, or by their twins."""
    sections = [(name, *one) for name in artifacts for one in enumerate(artifacts[name].sections)]
    for name, index, part in sections:
        shown: dict[tuple[str | None, str | None], str] = {}
        for number, row in enumerate(part.rows):
            label = row.label or labels.get(row.run)  # an unknown run is refused by its name
            other = shown.setdefault((label, row.twin), row.run)
            if label is not None and other != row.run and not part.asked.swept:
                raise ConfigError(
                    f"{place}/{name}.yaml: sections[{index}].rows[{number}]: {row.run} is shown as "
                    f"'{label}', as {other} is; give one of them a `label`"
                )
