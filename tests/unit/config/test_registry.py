"""The registry of claims: allowed content, and claims that never change under their id."""

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from difftransformer.config.registry import MOST_CLAIMS, Claim, check_registry, read_registry
from difftransformer.config.resolve import ConfigResolver
from difftransformer.errors import ConfigError

CONFIG = Path(__file__).parents[3] / "config"
RAW: dict[str, Any] = yaml.safe_load((CONFIG / "registry.yaml").read_text(encoding="utf-8"))
RESOLVER = ConfigResolver.load(CONFIG, {"scale": "tiny"})
CLAIMS = RESOLVER.registry.claims


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """The registry with one claim changed; None takes a key away."""
    claim = {
        key: value for key, value in (RAW["claims"][name] | changes).items() if value is not None
    }
    return RAW | {"claims": RAW["claims"] | {name: claim}}


def read(raw: dict[str, Any], folder: Path) -> None:
    path = folder / "registry.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    registry = read_registry(path, RESOLVER.papers)
    check_registry(registry, RESOLVER.artifacts, str(path))


def test_there_are_few_claims_and_few_primary_endpoints() -> None:
    assert len(CLAIMS) <= MOST_CLAIMS
    primary = [claim for claim in CLAIMS.values() if claim.endpoint == "primary"]
    counts = Counter(claim.paper for claim in primary)
    assert [counts[paper] for paper in ("diff_v1", "dex", "diff_v2")] == [4, 1, 1]
    contrasts = [
        (c.metric, c.row, c.baseline, claim.artifact)
        for claim in CLAIMS.values()
        for c in claim.contrasts
    ]
    assert len(set(contrasts)) == len(contrasts)


def test_no_seed_of_the_default_or_the_confirmation_is_exploratory() -> None:
    scale = RESOLVER.scale
    assert not {*range(30, 36), *range(200, 212)} & {*scale.exploratory_seeds}
    assert {*range(24), 1000, 1001, 1002} == {*scale.exploratory_seeds}
    for name in RESOLVER.project.default_targets:
        assert scale.first_seeds(name, None) == [*range(30, 36)]


@pytest.mark.parametrize(
    ("claim", "changes", "words"),
    [
        ("V1.loss", {"margin": 0.1, "margin_reason": "r"}, "test difference has no use for"),
        ("Dex.control", {"margin": None}, "test equivalence needs a margin"),
        ("Dex.control", {"margin_reason": None}, "a margin needs its reason"),
        ("V1.mechanism", {"margin": 0.8}, "a ratio needs a margin above 1"),
        ("V1.loss", {"powered_for": None}, "every test needs the effect it is powered for"),
        ("V1.loss", {"test": None}, "every other endpoint needs a test"),
        ("V1.loss", {"mixed": "both"}, "mixed: needs two contrasts"),
        ("V1.loss", {"post_hoc": "seen"}, "unknown key"),
        ("V1.loss", {"paper": "diff_v3"}, r"claims.V1.loss.paper: unknown paper 'diff_v3'"),
        (
            "V1.loss",
            {"artifact": "evidenc"},
            r"unknown artifact 'evidenc'; did you mean 'evidence'",
        ),
    ],
)
def test_a_claim_that_cannot_be_tested_is_refused(
    claim: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        read(changed(claim, **changes), tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("contrast", "words"),
    [
        ({"row": "dif"}, r"contrasts\[0\]: unknown row of evidence 'dif'; did you mean 'diff'"),
        ({"baseline": "diff_v2"}, r"contrasts\[0\]: unknown row of evidence 'diff_v2'"),
        ({"metric": "vali"}, r"contrasts\[0\].metric: unknown column of evidence 'vali'"),
    ],
)
def test_its_models_and_its_column_are_checked_before_any_job(
    contrast: dict[str, str], words: str, tmp_path: Path
) -> None:
    own = RAW["claims"]["V1.loss"]["contrasts"][0] | contrast
    with pytest.raises(ConfigError, match=words):
        read(changed("V1.loss", contrasts=[own]), tmp_path)


def test_more_claims_than_a_reader_can_weigh_are_refused(tmp_path: Path) -> None:
    many = {f"C{number}": RAW["claims"]["V1.loss"] for number in range(MOST_CLAIMS + 1)}
    with pytest.raises(ConfigError, match="claims"):
        read(RAW | {"claims": many}, tmp_path)


def test_the_digest_of_a_claim_depends_on_its_content() -> None:
    claim = CLAIMS["V1.loss"]
    assert claim.digest == Claim(**RAW["claims"]["V1.loss"]).digest
    assert claim.digest != claim.model_copy(update={"powered_for": 0.03}).digest
    with pytest.raises(ValidationError):
        claim.endpoint = "secondary"


RENAMED = {
    "steps_to_bind": "steps_to_learn", "normalis": "normaliz", "metric: new,": "metric: target,",
    "metric: old,": "metric: source,", "new_at_equal_old": "target_at_equal_source",
}  # fmt: skip
"""Columns renamed since the claims were registered, and a spelling."""


def test_a_claim_never_changes_under_its_id(repository: Path) -> None:
    """From the commit that says `frozen` on, in all commits of this history."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(repository), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone has no history of the registry")
    for commit in git("log", "--format=%H", "--", "config/registry.yaml").split():
        text = git("show", f"{commit}:config/registry.yaml")
        for old, new in RENAMED.items():
            text = text.replace(old, new)
        then = yaml.safe_load(text)
        if not then.get("frozen"):
            continue  # registered, and its seeds are not run yet
        for name, claim in then["claims"].items():
            now = RAW["claims"].get(name)
            assert now in (None, claim), f"{name} has changed since {commit}: give it a new id"
