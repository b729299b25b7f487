"""Registered claims: the question, contrasts and test of each, fixed before its seeds are run.

Tables show every number with its interval. Only the few claims of ``config/registry.yaml`` are
tested and get a verdict; see docs/verdicts.md.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.base import Settings, setting
from difftransformer.config.papers import PapersFile
from difftransformer.config.yaml_files import validate_yaml
from difftransformer.errors import ConfigError, lookup

MOST_CLAIMS = 20
VerdictName = Literal[
    "reproduced", "opposite", "no difference", "mixed", "inconclusive", "not testable", "estimate"
]
DECIDED: tuple[VerdictName, ...] = ("reproduced", "opposite", "no difference", "mixed")
"""Verdicts after which no further seeds are needed."""


class ClaimContrast(Settings):
    """Two runs and the metric by which a claim compares them, seed by seed."""

    metric: str = setting(meaning="Column of the artifact's table")
    row: str = setting(meaning="Run that the claim is about")
    baseline: str | float = setting(
        meaning="Run it is compared with, seed by seed; or a number, such as 1 for a ratio"
    )
    name: str = setting("", meaning="Label, if the claim has another contrast")

    @model_validator(mode="after")
    def _two_runs(self) -> Self:
        if self.row == self.baseline:
            raise ValueError(f"row and baseline are both '{self.row}'")
        return self

    @property
    def sides(self) -> dict[str, str]:
        """Compared runs by key: `row` and, unless it is a number, `baseline`."""
        sides = {"row": self.row, "baseline": self.baseline}
        return {key: run for key, run in sides.items() if isinstance(run, str)}


class Domain(Settings, str_strip_whitespace=True):
    """Smallest model and shortest training about which the paper makes a claim, and its data."""

    parameters: float = setting(meaning="Smallest model of the paper", unit="parameters")
    tokens: float = setting(meaning="Shortest training of the paper", unit="tokens")
    data: str = setting(meaning="Data and context length of the paper, in words")


class Claim(Settings, str_strip_whitespace=True):
    """A registered claim: a question, its operational definition and the test that answers it."""

    question: str = setting(meaning="The question, in words")
    definition: str = setting(meaning="What is measured, of which models, when")
    source: str = setting(meaning="Section or table of the paper; or that it goes beyond it")
    paper: str = setting(meaning="Paper of papers.yaml whose question it is")
    endpoint: Literal["primary", "secondary", "estimate"] = setting(
        meaning="primary and secondary endpoints of a paper are two families, each corrected by "
        "Holm; an estimate is an effect with its interval and no test"
    )
    artifact: str = setting(meaning="Artifact whose table has the numbers")
    contrasts: list[ClaimContrast] = setting(
        meaning="One contrast, or two that are tested together: each must be significant",
        min_length=1,
        max_length=2,
    )
    compare: Literal["difference", "ratio"] = setting(
        "difference",
        meaning="difference of the values of a seed; ratio: of their logarithms, for times",
    )
    unit: str = setting(meaning="Unit of an effect, in words; of a ratio what it is of")
    direction: Literal["lower", "higher"] = setting(
        meaning="Side of the baseline on which the paper puts `row`"
    )
    test: Literal["difference", "equivalence", "noninferiority"] | None = setting(
        None,
        meaning="difference: the mean against none; equivalence: its interval within the margin; "
        "noninferiority: against the margin on the worse side; null: an estimate",
    )
    margin: float | None = setting(
        None,
        meaning="Largest difference that counts as none, in the unit of the metric; of ratios the "
        "largest ratio, such as 1.25 for 0.80 to 1.25",
        gt=0,
    )
    margin_reason: str | None = setting(None, meaning="Why the margin is what it is", min_length=1)
    mixed: str | None = setting(
        None, meaning="What it means that two contrasts are significant in opposite directions"
    )
    powered_for: float | None = setting(
        None,
        meaning="Effect at which the test decides with a power of at least 0.8 on the twelve seeds "
        "of the confirmation: a difference in the unit of the metric (0 is none), or a ratio (1)",
    )
    over: Literal["seeds", "processes"] = setting(
        "seeds",
        meaning="What the values are of: seeds, or fresh processes that timed the same, of each "
        "the median of its rounds",
    )
    domain: Domain = setting(meaning="What the paper's claim is about")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.test is None) != (self.endpoint == "estimate"):
            raise ValueError(
                "test: leave it out for an estimate; every other endpoint needs a test"
            )
        if (self.test in ("equivalence", "noninferiority")) != (self.margin is not None):
            needs = "has no use for a margin" if self.margin is not None else "needs a margin"
            raise ValueError(f"test {self.test} {needs}: it is for equivalence and noninferiority")
        if (self.margin is None) != (self.margin_reason is None):
            raise ValueError("margin and margin_reason: give both, a margin needs its reason")
        if self.compare == "ratio" and self.margin is not None and self.margin <= 1:
            raise ValueError(
                "margin: a ratio needs a margin above 1, such as 1.25 for 0.80 to 1.25"
            )
        if (self.test is None) != (self.powered_for is None):
            raise ValueError(
                "powered_for: every test needs the effect it is powered for; an estimate has none"
            )
        if self.mixed is not None and len(self.contrasts) < 2:
            raise ValueError("mixed: needs two contrasts")
        return self

    @property
    def family(self) -> str:
        """Name of the family of claims that one Holm correction covers."""
        return f"{self.endpoint} endpoints of {self.paper}"

    def on_proxies(self, runs: Mapping[str, str | None]) -> Self:
        """Return a copy of the claim with its runs replaced by synthetic proxies in ``runs``."""
        contrasts = [
            contrast.model_copy(
                update={key: runs[run] or run for key, run in contrast.sides.items() if run in runs}
            )
            for contrast in self.contrasts
        ]
        # Not a string literal, which a test would read as the name of the evaluation `contrasts`.
        return self.model_copy(update=dict(contrasts=contrasts))  # noqa: C408

    @property
    def digest(self) -> str:
        """Digest of the claim's definition, which changes when any field of the claim changes."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:12]


class Registry(Settings, str_strip_whitespace=True):
    """``config/registry.yaml``: the registered claims and the error rate of their tests."""

    note: str = setting(meaning="What had been seen when the claims were registered")
    frozen: str | None = setting(
        None,
        meaning="Day from which on a claim that changes needs a new id; null: no seed was run yet",
        pattern=r"^\d{4}-\d\d-\d\d$",
    )
    alpha: float = setting(0.05, meaning="Error rate of a family", gt=0, lt=0.5)
    claims: dict[str, Claim] = setting(meaning="Claims by id", max_length=MOST_CLAIMS)


def read_registry(path: Path, papers: PapersFile) -> Registry:
    """Return the validated content of ``config/registry.yaml``.

    Raises:
        ConfigError: The file is not valid, or names an unknown paper.
    """
    registry = validate_yaml(Registry, path)
    for name, claim in registry.claims.items():
        if not re.fullmatch(r"[\w.-]{1,100}", name, re.ASCII):
            raise ConfigError(
                f"{path}: claims: '{name}' is not a valid id: use only letters, digits, _, . and -"
            )
        lookup(papers.papers, claim.paper, "paper", f"{path}: claims.{name}.paper")
    return registry


def check_registry(registry: Registry, artifacts: Mapping[str, ArtifactConfig], file: str) -> None:
    """Check that the table of each claim has the rows and columns that the claim compares.

    Args:
        registry: The claims.
        artifacts: All artifacts by name, as written in YAML.
        file: Path of registry.yaml, for error messages.

    Raises:
        ConfigError: One line with the key path, the unknown name and the nearest known one.
    """
    for name, claim in registry.claims.items():
        location = f"{file}: claims.{name}"
        artifact = lookup(artifacts, claim.artifact, "artifact", f"{location}.artifact")
        for index, contrast in enumerate(claim.contrasts):
            key, runs = f"{location}.contrasts[{index}]", dict.fromkeys(artifact.runs())
            for run in contrast.sides.values():
                lookup(runs, run, f"row of {claim.artifact}", key)
            columns = {
                column: None
                for section in artifact.sections
                if {row.run for row in section.rows}.issuperset(contrast.sides.values())
                for column in section.typed_options.claim_columns
            }
            lookup(columns, contrast.metric, f"column of {claim.artifact}", f"{key}.metric")
