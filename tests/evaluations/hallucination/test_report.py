"""Table 4 from judgments with known counts, by one judge and by two."""

from dataclasses import replace
from pathlib import Path

import pytest
from built_tables import read
from fake_configs import SCALE, resolved_artifact
from fake_judgments import ROWS, second_judge, verdicts, write
from fake_results import FakeResults
from pictures import numbers, picture, picture_of
from sklearn.metrics import cohen_kappa_score

from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import UserError
from difftransformer.evaluations.hallucination.report import agreement, cohen_kappa
from difftransformer.evaluations.hallucination.settings import Suite
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.table_job import build_table, make_table

SEEDS = (0, 1, 2)


def judged_by(*judges: str) -> ResolvedArtifact:
    artifact = resolved_artifact("table4")
    part = artifact.sections[0].model_copy(update={"judges": list(judges)})
    return artifact.model_copy(update={"sections": [part]})


def test_columns_are_means_over_seeds_with_published_values(
    fake: FakeResults, tmp_path: Path
) -> None:
    artifact = resolved_artifact("table4")
    build_table(artifact, fake.results, tmp_path / "table4")
    cells, text = read(tmp_path / "table4.csv"), (tmp_path / "table4.md").read_text()
    for name in ("summary_n2", "answer_n4"):
        shares = [
            sum(bool(faithful) for (own, _), faithful in verdicts("recall_diff", s, 0.9).items()
                if own == name) / 20
            for s in SEEDS
        ]  # fmt: skip
        assert float(cells["recall_diff", name]["value"]) == pytest.approx(sum(shares) / 3)
    assert cells["recall_diff", "xsum"]["paper_value"] == "0.53"
    assert cells["recall_diff", "xsum"]["value"] == ""
    assert cells["recall_transformer", "2wikimqa"]["paper_value"] == "0.29"
    assert ("recall_diff", "average_difference") in cells
    assert "which is exact here" in text and "Of 80 outputs per run 0 are unjudged" in text
    assert "Cohen" not in text


def test_two_judges_are_shown_with_their_agreement(small: FakeResults, tmp_path: Path) -> None:
    small.all_results()
    for seed in SEEDS:
        second_judge(small, seed, lambda draw: draw.random() < 0.15)
    build_table(judged_by("lexical", "endpoint"), small.results, tmp_path / "table4")
    cells, text = read(tmp_path / "table4.csv"), (tmp_path / "table4.md").read_text()
    per_seed = []
    for seed in SEEDS:
        truth = verdicts("recall_diff", seed, 0.9)
        path = small.root / f"judgments/endpoint/hallucination/recall_diff/{seed}"
        lines = (path / "judgments.jsonl").read_text().splitlines()
        other = ['"faithful":true' in line for line in lines[1:]]  # the first one is unjudged
        per_seed.append(cohen_kappa_score(list(truth.values())[1:], other))
    kappa = float(cells["recall_diff", "kappa"]["value"])
    assert kappa == pytest.approx(sum(per_seed) / 3) and 0 < kappa < 1
    assert 0.7 < float(cells["recall_diff", "agreement"]["value"]) < 1
    assert float(cells["recall_diff", "unjudged_endpoint"]["value"]) == 1
    assert "Agreement of the known facts and a language model" in text
    assert "judge-1 with our prompt v1" in text and "Of 80 outputs per run 1 are" in text


def test_a_difference_is_by_the_first_judge(small: FakeResults) -> None:
    small.all_results()
    for seed in SEEDS:
        second_judge(small, seed, lambda draw: True)  # always the opposite
    differences = []
    for judges in (("lexical", "endpoint"), ("endpoint", "lexical")):
        artifact = judged_by(*judges)
        table = make_table(artifact, load_results(small.results, artifact.scale))
        cell = table.find("recall_diff", "average_difference")
        assert cell is not None and cell.value is not None
        differences.append(cell.value)
    assert differences[0] > 0 > differences[1]


def test_text_sets_fill_the_columns_of_the_paper(small: FakeResults, tmp_path: Path) -> None:
    suite = Suite(kind="hallucination", format="text", samples=3, data="a/folder")
    small.all_results()
    small.results = [path for path in small.results if "/judgments/" not in str(path)]
    for row in ROWS:
        for seed in SEEDS:
            verdicts_by_item = {("xsum", i): i < 1 + (row == "recall_diff") for i in range(3)}
            write(small, row, seed, "lexical", dict(verdicts_by_item), suite)
    build_table(resolved_artifact("table4"), small.results, tmp_path / "table4")
    cells, text = read(tmp_path / "table4.csv"), (tmp_path / "table4.md").read_text()
    assert float(cells["recall_diff", "xsum"]["value"]) == pytest.approx(2 / 3)
    assert "n/a, CNN/DM, MultiNews, Qasper, HotpotQA, 2WikiMQA: no items in a/folder" in text
    assert "The paper's sets" not in text and "paraphrases" in text
    ours, theirs = picture("table4", small).axes
    means = [y for line in ours.lines if line.get_linestyle() == "None" for y in numbers(line)]
    assert means == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert sum(len(numbers(line)) for line in theirs.lines) > 2
    tick_labels = [
        [tick.get_text().replace("\n", ", ") for tick in axes.get_xticklabels()]
        for axes in (ours, theirs)
    ]
    assert "XSum" in tick_labels[0] and "XSum" in tick_labels[1]


def test_sets_without_evaluation_get_a_note(small: FakeResults, tmp_path: Path) -> None:
    suite = Suite(kind="hallucination", format="text", sets=["xsum"], samples=3, data="a/folder")
    small.all_results()
    small.results = [path for path in small.results if "/judgments/" not in str(path)]
    for row in ROWS:
        for seed in SEEDS:
            write(small, row, seed, "lexical", {("xsum", i): True for i in range(3)}, suite)
    build_table(resolved_artifact("table4"), small.results, tmp_path / "table4")
    text = (tmp_path / "table4.md").read_text()
    assert "Not evaluated at scale tiny" in text
    assert "recall corpus" not in text


def test_a_single_judged_seed_has_wilsons_interval(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    evaluations = dict(results.evaluations)
    for seed, judged in ((0, 0), (1, 0), (2, 15)):
        key = ("hallucination_by_lexical", "recall_diff", seed)
        faithful = 0.8 if judged else None
        metrics = evaluations[key].metrics | {
            "faithful_answer_n4": faithful,
            "judged_answer_n4": judged,
        }
        evaluations[key] = evaluations[key].model_copy(update={"metrics": metrics})
    artifact = resolved_artifact("table4", "figure")
    ours, _ = picture_of(artifact, replace(results, evaluations=evaluations), fake).axes
    intervals = [list(line.get_ydata()) for line in ours.lines if line.get_linewidth() == 1.6]
    assert any(answer == pytest.approx(wilson_interval(12, 15)) for answer in intervals)


def test_a_missing_judgment_is_named_with_its_command(small: FakeResults, tmp_path: Path) -> None:
    small.all_results()
    with pytest.raises(
        UserError,
        match=r"no judgment by 'endpoint' of run 'recall_transformer' with seed 0.*"
        r"judgments/endpoint/hallucination/recall_transformer/0.json",
    ):
        build_table(judged_by("lexical", "endpoint"), small.results, tmp_path / "table4")


@pytest.mark.parametrize("counts", [(7, 2, 3, 8), (1, 0, 0, 1), (0, 5, 5, 0), (4, 4, 0, 0)])
def test_kappa_equals_sklearns(counts: tuple[int, int, int, int]) -> None:
    kinds = ((True, True), (True, False), (False, True), (False, False))
    pairs = [kind for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]
    wanted = cohen_kappa_score([answer for answer, _ in pairs], [two for _, two in pairs])
    assert cohen_kappa(pairs) == pytest.approx(wanted)
    assert agreement(pairs) == (counts[0] + counts[3]) / sum(counts)


def test_kappa_is_undefined_for_constant_verdicts() -> None:
    assert cohen_kappa([(True, True)] * 5) is None
