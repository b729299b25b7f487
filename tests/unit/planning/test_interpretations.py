"""Every table and figure marks variants that deviate from their paper."""

from pathlib import Path
from typing import get_args

import pytest

from difftransformer.config.resolved_artifacts import MARK, Kind, ResolvedArtifact
from difftransformer.models.attention import registry
from difftransformer.models.attention.registry import deviation_from_paper, variants
from difftransformer.planning.plan import Plan

OURS = {name for name in variants() if deviation_from_paper(name)}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_deviations_from_papers_reach_every_table_and_figure(
    kind: Kind, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    variants: dict[str, set[str]] = {}
    for name, artifact in plan.artifacts.available.items():
        if (artifact.table if kind == "table" else artifact.figure) is None:
            continue
        file = Path(plan.artifacts.config_file(name, kind))
        slice = ResolvedArtifact.model_validate_json(file.read_bytes())
        for row in (row for part in slice.sections for row in part.rows if not row.pretrained):
            variant = plan.jobs.run(row.run).model.attention.variant
            assert row.facts.get("deviation_from_paper") == deviation_from_paper(variant), (
                name,
                row.run,
            )
            assert row.label.endswith(MARK) == (variant in OURS), (name, row.label)
            variants.setdefault(name, set()).add(variant)
    assert OURS and variants["v2_sinks"] >= OURS


def test_tables_say_of_the_norm_of_heads_what_is_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def norms() -> dict[str, object]:
        plan = Plan.load(repository / "config", {"scale": "smoke"})
        sections = plan.artifacts.resolve("v2_loss", "table").sections
        return {row.run: row.facts["norm"] for part in sections for row in part.rows}

    assert norms() == {"transformer_gqa": False, "diff_gqa": True, "diff_v2": False}
    silent = registry._VARIANTS["diff_v2"]._replace(has_head_norm=None)
    monkeypatch.setitem(registry._VARIANTS, "diff_v2", silent)
    assert norms()["diff_v2"] is None
