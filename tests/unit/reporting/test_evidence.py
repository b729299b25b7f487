"""What tables gather on claims: pairs of seeds, the chance in units, obstacles."""

import re

import numpy as np
import pytest
from fake_rest import left_out
from fake_results import FakeResults
from fake_slices import artifact_slice, declarations
from fake_units import units_everywhere, with_units
from judging import claim, verdicts_of

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.claims import ClaimSlice
from difftransformer.errors import ConfigError, DataError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue, TableDocument
from difftransformer.reporting.evidence import gather
from difftransformer.reporting.table_job import make_table
from difftransformer.reporting.units import contributions

CLAIMS = {
    name: declarations().claim(name)
    for artifact in declarations().artifacts.values()
    for name in artifact.claims
}
TASKS = ("trec", "trec_fine", "banking77", "clinic150")


def asking(**claims: ClaimSlice) -> ArtifactSlice:
    return artifact_slice("table6").model_copy(update={"claims": claims})


def about(**changes: object) -> ClaimSlice:
    known = {"metric": "valid", "row": "diff", "against": "transformer", "artifact": "table6"}
    return claim(**known | changes)  # type: ignore[arg-type]


def test_verdicts_of_a_table_name_numbers_and_jobs(fake: FakeResults) -> None:
    artifact = artifact_slice("table6")
    verdicts = verdicts_of(artifact, make_table(artifact, load_results(fake.results, "tiny")))
    assert list(verdicts) == list(artifact.claims)
    first = verdicts["T6.1"]
    assert first.direction == "opposite"  # the fake DIFF is worse, and the report must say so
    assert first.reason.startswith("difference +0.0")
    assert first.published_effect == pytest.approx(3.062 - 3.087)
    assert first.seeds == 3 and len(first.run_ids) == 6


def test_a_difference_that_is_printed_as_a_range_stands_beside_ours(fake: FakeResults) -> None:
    artifact = artifact_slice("v2_loss")
    table = make_table(artifact, load_results(fake.results, "tiny"))
    cell = table.find("diff_v2", "valid_difference")
    assert cell is not None and cell.paper_text == "−0.03 to −0.02"
    published = {found.claim: found.published for found in table.evidence}
    # V2.2 compares the same column with another row, of which nothing is printed.
    assert published == {"V2.1": pytest.approx(-0.025), "V2.2": None}


def test_a_printed_difference_wins_over_that_of_points_read_off_a_curve(fake: FakeResults) -> None:
    artifact = artifact_slice("figure6")
    table = make_table(artifact, load_results(fake.results, "tiny"))
    cell = table.find("icl_diff", "trec_fine_plateau_difference")
    assert cell is not None and (cell.paper_value, cell.paper_text) == (21.6, "+21.6")
    own = [part.model_copy(update={"stand_in": False}) for part in table.sections]
    found = gather(artifact, table.model_copy(update={"sections": own}))
    assert [one.published for one in found[:4]] == [18.0, 21.6, 10.4, 5.2]


@pytest.mark.parametrize(
    ("name", "untestable", "why"),
    [
        ("table2", {"C3.1", "C3.2"}, "near chance"),
        ("table2", {"C3.3"}, "near the ceiling"),
        ("table3", {"C3.6", "C3.7", "C3.9", "C3.10"}, "near chance"),
        ("table4", {"C6.1", "C6.2", "C6.3"}, "near chance"),
        ("figure8", {"C8.1", "C8.2", "C8.3"}, "near chance"),
        ("table6_recall", {"R.2", "R.5"}, "near chance"),
    ],
)
def test_a_baseline_that_guesses_or_knows_all_tests_nothing(
    name: str, untestable: set[str], why: str, fake: FakeResults
) -> None:
    table = make_table(artifact_slice(name), load_results(fake.results, "tiny"))
    found = {one.claim: one.obstacle for one in table.evidence}
    assert {claim for claim, words in found.items() if words and why in words} == untestable


def test_a_claim_may_be_about_two_columns(fake: FakeResults) -> None:
    artifact = asking(C=about(metric="ar_hit", against_metric="others"))
    table = make_table(artifact, load_results(fake.results, "tiny"))
    ours, theirs = table.find("diff", "ar_hit"), table.find("transformer", "others")
    assert ours is not None and theirs is not None
    (found,) = table.evidence
    assert found.ours == list(ours.by_seed().values())
    assert found.theirs == list(theirs.by_seed().values())


def test_an_unknown_column_is_an_error_in_one_line(fake: FakeResults) -> None:
    results = load_results(fake.results, "tiny")
    with pytest.raises(
        ConfigError, match=r"claims\.X\.metric: .*'perplexity' for 'diff'; allowed: .*valid"
    ):
        make_table(asking(X=about(metric="perplexity")), results)
    with pytest.raises(ConfigError, match=r"no column 'vali' for 'diff'; did you mean 'valid'\?"):
        make_table(asking(X=about(metric="vali")), results)
    needed = {"row": "diff", "metric": "nothing", "at_least": 1, "reason": "r"}
    with pytest.raises(ConfigError, match=r"claims\.X\.requires\[0\]\.metric.*'nothing'"):
        make_table(asking(X=about(requires=[needed])), results)


@pytest.mark.parametrize(
    ("bounds", "obstacle"),
    [
        ({"at_least": 3.0}, None),
        ({"at_least": 9.0}, r"it never learned \(3\.\d+, below 9\.000\)"),
        ({"at_most": 1.0}, r"it never learned \(3\.\d+, above 1\.000\)"),
        ({"at_most": "ar_hit"}, r"it never learned \(3\.\d+, above \d\.\d+\)"),
    ],
)
def test_what_a_claim_requires(
    bounds: dict[str, object], obstacle: str | None, fake: FakeResults
) -> None:
    needed = {"row": "transformer", "metric": "valid", "reason": "it never learned"} | bounds
    table = make_table(asking(C=about(requires=[needed])), load_results(fake.results, "tiny"))
    (found,) = table.evidence
    if obstacle is None:
        assert found.obstacle is None
    else:
        assert found.obstacle is not None
        assert re.fullmatch(obstacle, found.obstacle)


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


def test_units_that_both_rows_share_are_paired() -> None:
    random = np.random.default_rng(0)
    hard = random.normal(0, 5, 200)  # what makes an item hard is the same for both rows
    ours, theirs = (hard + random.normal(0, 0.1, (3, 200)) for _ in "xy")
    artifact = asking(C=claim())
    (found,) = gather(artifact, table_of(with_units(ours), with_units(theirs)))
    assert (found.unit, found.units, found.unit_freedom) == ("items", 200, 199)
    assert found.unit_variance < 0.01**2
    # Against a number nothing is paired away.
    (alone,) = gather(asking(C=claim(against=0.0)), table_of(with_units(ours), []))
    assert alone.unit_variance == pytest.approx(hard.var(ddof=1) / 200, rel=0.01)


def test_other_items_count_as_independent_ones_and_other_seeds_as_an_error() -> None:
    random = np.random.default_rng(1)
    ours, theirs = random.normal(0, 1, (3, 50)), random.normal(0, 2, (3, 80))
    (found,) = gather(asking(C=claim()), table_of(with_units(ours), with_units(theirs)))
    assert found.unit_freedom == 49 + 79
    uneven = with_units(ours)
    uneven[0] = with_units(ours[:, :40])[0]
    with pytest.raises(DataError, match="claim C: seeds were asked different numbers of items"):
        gather(asking(C=claim()), table_of(uneven, with_units(ours)))


def test_units_reach_every_claim_on_a_mean(fake: FakeResults) -> None:
    """All numbers of evaluations are given units here; what is no sum of them has none."""
    results = units_everywhere(load_results(fake.results, "tiny"))
    without = set()
    for name, artifact in declarations().artifacts.items():
        if not artifact.claims or left_out(name):
            continue
        table = make_table(artifact_slice(name), results)
        for one in artifact.claims.values():
            cell = table.find(one.row, one.metric)
            assert cell is not None, (name, one.metric)
            for seed in cell.seeds:
                if seed.units is None:
                    without.add((name, one.metric))
                elif seed.value is not None:
                    contributions(seed)
    assert without == {
        *(("figure11", f"{task}_random_margin") for task in TASKS),
        ("dex_equal_forgetting", "new_at_equal_old"),
        ("dex_figure14", "rank_gain"),
        ("dex_figure8", "loss_100"),
        ("figure7", "trec_alternating_margin"),
        ("figure7", "trec_alternating_deviation"),
        ("figure7", "trec_random_deviation"),
        ("figure3a", "equal_ratio"),
        ("figure3b", "equal_ratio"),
        ("figure3b", "largest_loss"),
        ("recall_evidence", "steps_to_bind"),
        ("table6_recall", "steps_to_bind"),
        ("table7", "training_ratio"),
        ("table7", "forward_ratio"),
        ("v2_ablations", "gradient_spikes"),
        ("v2_decoding", "ratio"),
        ("v2_stability", "gradient_spikes_large"),
        ("v2_stability", "loss_spikes_large"),
    }, "claims on what is no mean over what was asked are named here"


def test_spent_seeds_are_shown_and_judge_nothing(fake: FakeResults) -> None:
    artifact = artifact_slice("table6").model_copy(update={"spent_seeds": [0, 1]})
    table = make_table(artifact, load_results(fake.results, "tiny"))
    cell = table.find("diff", "valid")
    assert cell is not None and [seed.seed for seed in cell.seeds] == [0, 1, 2]
    assert {tuple(found.seeds) for found in table.evidence} == {(2,)}
    assert all(len(found.ours) == 1 for found in table.evidence)
    assert all(found.spent == [0, 1] for found in table.evidence)


def with_cell(table: TableDocument, row: str, column: str, **changes: object) -> TableDocument:
    """The table with one cell changed."""
    sections = [
        part.model_copy(
            update={
                "cells": [
                    one.model_copy(update=changes)
                    if (one.row, one.column) == (row, column)
                    else one
                    for one in part.cells
                ]
            }
        )
        for part in table.sections
    ]
    return table.model_copy(update={"sections": sections})


def test_a_control_without_a_value_is_an_obstacle(fake: FakeResults) -> None:
    control = {"row": "transformer_halved_heads", "reason": "not comparable"}
    asked = asking(
        A=about(requires=[control | {"metric": "valid_difference", "at_most": 9}]),
        B=about(requires=[control | {"metric": "valid", "at_least": "valid_difference"}]),
    )
    table = make_table(asked, load_results(fake.results, "tiny"))
    assert [one.obstacle for one in gather(asked, table)] == [None, None]
    lost = with_cell(table, "transformer_halved_heads", "valid_difference", value=None)
    assert [one.obstacle for one in gather(asked, lost)] == [
        f"{metric} of transformer_halved_heads, which it is to be known by, has no value"
        for metric in ("valid_difference", "valid")
    ]


def test_spent_seeds_of_a_control_count_as_little(fake: FakeResults) -> None:
    needed = {"row": "transformer", "metric": "valid", "at_most": 4.0, "reason": "too bad"}
    asked = asking(C=about(requires=[needed]))
    table = make_table(asked, load_results(fake.results, "tiny"))
    cell = table.find("transformer", "valid")
    assert cell is not None
    seeds = [one.model_copy(update={"value": 99.0 if one.seed == 0 else 3.0}) for one in cell.seeds]
    table = with_cell(table, "transformer", "valid", seeds=seeds, value=35.0)
    (found,) = gather(asked, table)
    assert found.obstacle == "too bad (35.000, above 4.000)"
    (found,) = gather(asked.model_copy(update={"spent_seeds": [0]}), table)
    assert found.obstacle is None
    (found,) = gather(asked.model_copy(update={"spent_seeds": [1]}), table)
    assert found.obstacle == "too bad (51.000, above 4.000)"


def test_a_claim_is_not_judged_by_seeds_that_it_was_declared_after(fake: FakeResults) -> None:
    asked = asking(A=about(), B=about(seen_seeds={"tiny": [0, 1, 2], "small": [7]}))
    asked = asked.model_copy(update={"spent_seeds": [1]})
    table = make_table(asked, load_results(fake.results, "tiny"))
    assert {one.claim: one.seeds for one in table.evidence} == {"A": [0, 2], "B": []}
    found = verdicts_of(asked, table)["B"]
    assert found.verdict == "no data" and found.seeds_needed == 3
    assert found.reason == (
        "seeds 0, 1, 2 are spent: they had been seen when the protocol or this claim was chosen, "
        "and do not judge it; with 3 more seeds it is tested, and how many decide it is known"
    )


def test_claims_that_say_they_were_declared_after_seeds_are_not_judged_by_these() -> None:
    for claim_id, found in CLAIMS.items():
        said = re.search(r"[Dd]eclared after .*\(?seeds (\d+) to (\d+)", found.post_hoc or "")
        if said is not None:
            first, last = map(int, said.groups())
            assert found.seen("tiny") == [*range(first, last + 1)], claim_id
    assert sum(bool(found.seen_seeds) for found in CLAIMS.values()) > 9


def test_where_all_seeds_are_spent_the_verdict_says_so(fake: FakeResults) -> None:
    artifact = artifact_slice("table6", seeds=(0, 1)).model_copy(update={"spent_seeds": [0, 1, 5]})
    table = make_table(artifact, load_results(fake.results, "tiny"))
    found = verdicts_of(artifact, table).values()
    assert {one.verdict for one in found} == {"no data"}
    assert all(one.reason.startswith("seeds 0, 1 are spent: ") for one in found)


def test_processes_are_no_seeds_that_could_be_spent(fake: FakeResults) -> None:
    artifact = artifact_slice("table7")
    results = load_results(fake.results, "tiny")
    every = make_table(artifact.model_copy(update={"spent_seeds": []}), results).evidence
    assert (
        make_table(artifact.model_copy(update={"spent_seeds": [0, 1]}), results).evidence == every
    )
    assert every and all(len(found.seeds) > 2 for found in every)


def test_published_differences_of_other_questions_are_none_of_ours(fake: FakeResults) -> None:
    results = load_results(fake.results, "tiny")
    for name, published in (("table2", False), ("table3", False), ("figure5", False),
                            ("figure6", False), ("table6", True)):  # fmt: skip
        found = [one.published for one in make_table(artifact_slice(name), results).evidence]
        assert any(one is not None for one in found) == published, name
