"""Evidence for claims: pairs of seeds, item variance and exclusions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_configs import RESOLVER, resolved_artifact
from fake_results import FakeResults
from fake_units import units_everywhere, with_units
from judging import claim

from difftransformer.config.registry import Claim, ClaimContrast
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import ConfigError, DataError
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue, TableDocument
from difftransformer.reporting.evidence import Evidence, contrast_evidence
from difftransformer.reporting.table_job import make_table

CLAIMS = RESOLVER.registry.claims
ON_LOSS = ClaimContrast(metric="valid", row="diff", baseline="transformer")
NOTHING = Results("tiny", {}, {}, {})


@pytest.fixture(scope="module")
def results(fake: FakeResults) -> Results:
    return load_results(fake.results, "tiny")


def gather(
    tested_claim: Claim,
    results: Results,
    artifact: ResolvedArtifact | None = None,
    exploratory: tuple[int, ...] = (),
) -> list[Evidence]:
    resolved = artifact or resolved_artifact(tested_claim.artifact)
    resolved = resolved.model_copy(update={"exploratory_seeds": [*exploratory]})
    table = make_table(resolved, results)
    return [
        contrast_evidence(contrast, tested_claim, "C", resolved, table, results)
        for contrast in tested_claim.contrasts
    ]


def on_table6(**changes: Any) -> Claim:
    return claim(**{"artifact": "table6", "contrasts": [ON_LOSS]} | changes)


def test_evidence_names_numbers_sizes_and_jobs(results: Results) -> None:
    (gathered,) = gather(on_table6(), results)
    assert (gathered.metric, gathered.row, gathered.baseline) == ("valid", "diff", "transformer")
    assert (
        gathered.seeds == [0, 1, 2] and len(gathered.values) == len(gathered.baseline_values) == 3
    )
    assert gathered.published == pytest.approx(3.062 - 3.087)
    assert len(gathered.job_ids) == 6 and gathered.parameters == [660_000, 660_000]
    assert gathered.tokens[0] == gathered.tokens[1] > 0
    assert gathered.lower_bounds == gathered.baseline_lower_bounds == []


def test_a_published_range_counts_as_its_middle(results: Results) -> None:
    published = {
        name: gather(CLAIMS[name], results)[0].published for name in ("V2.loss", "V2.transformer")
    }
    assert published == {"V2.loss": None, "V2.transformer": pytest.approx(-0.025)}


def test_published_numbers_of_other_items_are_not_beside_ours(results: Results) -> None:
    assert gather(CLAIMS["V1.loss"], results)[0].published is not None
    assert [contrast.published for contrast in gather(CLAIMS["V1.attention"], results)] == [
        None,
        None,
    ]


def test_two_contrasts_are_two_columns_or_two_baselines(results: Results) -> None:
    signed, absolute = gather(CLAIMS["V1.attention"], results)
    assert (signed.metric, absolute.metric) == ("answer_signed", "answer")
    single_map, no_subtraction = gather(CLAIMS["V1.mechanism"], results)
    assert single_map.values == no_subtraction.values
    assert single_map.baseline_values != no_subtraction.baseline_values


def test_times_are_between_two_probes_or_censored_at_the_end(results: Results) -> None:
    (gathered,) = gather(CLAIMS["V1.head_norm"], results)
    for values, after in (
        (gathered.values, gathered.lower_bounds),
        (gathered.baseline_values, gathered.baseline_lower_bounds),
    ):
        for value, before in zip(values, after, strict=True):
            assert before == (800 if value is None else value - 20)


def test_an_unknown_column_is_an_error_in_one_line(results: Results) -> None:
    wrong = on_table6(contrasts=[ON_LOSS.model_copy(update={"metric": "vali"})])
    with pytest.raises(
        ConfigError, match=r"claims\.C: .* no column 'vali' for 'diff'; did you mean 'valid'\?"
    ):
        gather(wrong, results)


def test_exploratory_seeds_are_shown_and_test_nothing(results: Results) -> None:
    (gathered,) = gather(on_table6(), results, exploratory=(0, 1))
    assert (gathered.seeds, gathered.excluded) == ([2], [0, 1]) and len(gathered.values) == 1
    cell = make_table(resolved_artifact("table6"), results).find("diff", "valid")
    assert cell is not None and [seed.seed for seed in cell.seeds] == [0, 1, 2]


def test_processes_are_never_excluded_as_exploratory(results: Results) -> None:
    tested_claim = CLAIMS["V2.decoding"]
    (every,) = gather(tested_claim, results)
    assert gather(tested_claim, results, exploratory=(0, 1)) == [every]
    assert len(every.seeds) > 2 and set(every.baseline_values) == {1.0}


def test_an_overridden_model_is_named(results: Results) -> None:
    artifact = resolved_artifact("table6")
    (part,) = artifact.sections
    rows = [
        row.model_copy(update={"overrides": "lr: 1" if row.run == "diff" else ""})
        for row in part.rows
    ]
    changed = artifact.model_copy(update={"sections": [part.model_copy(update={"rows": rows})]})
    (gathered,) = gather(on_table6(), results, changed)
    assert gathered.overridden == "`overrides` changes diff (lr: 1), which the claim is not about"


def table_of(ours: list[SeedValue], theirs: list[SeedValue]) -> TableDocument:
    cells = [
        Cell(row=row, column="m", text="", seeds=seeds, value=1.0)
        for row, seeds in (("x", ours), ("y", theirs))
    ]
    rows = [Row(run=name, label=name) for name in "xy"]
    column = Column(id="m", header="m")
    section = Section(title="s", columns=[column], rows=rows, cells=cells)
    return TableDocument(
        artifact="t", title="t", caption="", scale="tiny", seeds=[0, 1, 2], sections=[section]
    )


def of_table(tested_claim: Claim, table: TableDocument) -> Evidence:
    (contrast,) = tested_claim.contrasts
    return contrast_evidence(
        contrast, tested_claim, "C", resolved_artifact("table6"), table, NOTHING
    )


def test_items_that_both_models_share_are_paired() -> None:
    random = np.random.default_rng(0)
    hard = random.normal(0, 5, 200)  # what makes an item hard is the same for both models
    ours, theirs = (hard + random.normal(0, 0.1, (3, 200)) for _ in "xy")
    gathered = of_table(claim(), table_of(with_units(ours), with_units(theirs)))
    assert (gathered.sampling_unit, gathered.n_items, gathered.item_df) == ("items", 200, 199)
    assert gathered.item_variance < 0.01**2
    # Against a number nothing is paired away.
    number = claim(contrasts=[ClaimContrast(metric="m", row="x", baseline=0.0)])
    alone = of_table(number, table_of(with_units(ours), []))
    assert alone.item_variance == pytest.approx(hard.var(ddof=1) / 200, rel=0.01)


def test_other_items_count_as_independent_ones_and_other_seeds_as_an_error() -> None:
    random = np.random.default_rng(1)
    ours, theirs = random.normal(0, 1, (3, 50)), random.normal(0, 2, (3, 80))
    gathered = of_table(claim(), table_of(with_units(ours), with_units(theirs)))
    assert gathered.item_df == 49 + 79
    uneven = with_units(ours)
    uneven[0] = with_units(ours[:, :40])[0]
    with pytest.raises(DataError, match=r"claim C: .*items"):
        of_table(claim(), table_of(uneven, with_units(ours)))


def test_items_reach_every_claim_on_a_mean(results: Results) -> None:
    """All numbers of evaluations are given items here; what is no sum of them has none."""
    with_items, without = units_everywhere(results), set()
    for name, tested_claim in CLAIMS.items():
        table = make_table(resolved_artifact(tested_claim.artifact), with_items)
        for contrast in tested_claim.contrasts:
            cell = table.find(contrast.row, contrast.metric)
            assert cell is not None, (name, contrast.metric)
            for seed in cell.seeds:
                if seed.per_item is None:
                    without.add(contrast.metric)
                elif seed.value is not None:
                    assert seed.per_item.sums_to(seed.value)
    assert without == {
        "accuracy_at_budget", "steps_to_learn", "target_at_equal_source",
        "gradient_spikes_large", "ratio",
    }  # fmt: skip


def test_sizes_come_from_the_trainings_behind_the_jobs(results: Results) -> None:
    table, tested_claim = make_table(resolved_artifact("table6"), results), on_table6()
    unknown = replace(results, trainings={})
    gathered = contrast_evidence(
        ON_LOSS, tested_claim, "C", resolved_artifact("table6"), table, unknown
    )
    assert (gathered.parameters, gathered.tokens) == ([], [])
