"""What a user can get wrong about tables, claims, stand-ins and what others found is one line."""

import re
from pathlib import Path

import pytest
from refused_config import Case, assert_one_line, put

from difftransformer.config.papers import TARGETS
from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan

CLAIM = {
    "text": "t", "source": "s", "metric": "n1_r1", "row": "recall_diff",
    "against": "recall_transformer", "test": "difference",
    "declared": {"date": "2026-11-22", "commit": "0123abc"},
}  # fmt: skip
CASES: dict[str, Case] = {
    "an artifact with an unknown run": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0]["rows"].append({"run": "difff"}),
        ["table6.yaml: sections[0].rows[10].run: unknown run 'difff'; did you mean 'diff'?"],
    ),
    "two rows that look the same": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0]["rows"].append({"run": "recall_diff"}),
        [
            "artifacts/table6.yaml: sections[0].rows[10]: recall_diff is shown as 'DIFF', as diff "
            "is; give one of them a `label`"
        ],
    ),
    "rows as names": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(rows=["diff"]),
        ["sections[0].rows[0]: needs a mapping of keys, got 'diff'; write {run: diff}"],
    ),
    "a figure of a measurement that draws none": (
        "artifacts/dex_table9.yaml",
        put("figure", value={"caption": "c", "alt": "a"}),
        ["figure: measurement hyperparameters makes none, its report.py has no figure(view)"],
    ),
    "an artifact with an unknown suite": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(suites=["recal"]),
        ["artifacts/table6.yaml", "unknown suite 'recal'; did you mean 'recall'?"],
    ),
    "a suite of another measurement": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(suites=["outliers"]),
        [
            "artifacts/table6.yaml: sections[0].suites: 'outliers' is a suite of outliers, not of "
            "validation_slices; allowed: validation_slices"
        ],
    ),
    "an artifact with an unknown measurement": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(measurement="validation_slice"),
        ["artifacts/table6.yaml: sections[0].measurement: unknown", "mean 'validation_slices'?"],
    ),
    "an artifact with an unknown key": (
        "artifacts/table6.yaml",
        put("claim", value={}),
        ["artifacts/table6.yaml: claim: unknown key; did you mean 'claims'?"],
    ),
    "a section with options of another measurement": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(options={"threshold": 3.0}),
        ["artifacts/table6.yaml: sections[0].options: threshold: unknown key"],
    ),
    "an option of a wrong type": (
        "artifacts/v2_stability.yaml",
        lambda content: content["sections"][0]["options"].update(window="fifty"),
        ["artifacts/v2_stability.yaml: sections[0].options: window: needs a whole number"],
    ),
    "a claim about a run that is no row": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "row", value="dif"),
        ["table6.yaml: claims.T6.1.row: 'dif' is none of its rows; did you mean 'diff'?"],
    ),
    "a claim against a run that is no row": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "against", value="transformr"),
        ["table6.yaml: claims.T6.1.against: 'transformr' is none", "mean 'transformer'?"],
    ),
    "a requirement on a run that is no row": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "requires", 0, "row", value="dif"),
        ["table6.yaml: claims.T6.1.requires[0].row: 'dif' is none of its rows", "mean 'diff'?"],
    ),
    "a claim of an unknown paper": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "paper", value="diff_v3"),
        ["table6.yaml: claims.T6.1.paper: unknown paper 'diff_v3'; did you mean 'diff_v"],
    ),
    "a claim with a blank in its id": (
        "artifacts/table6.yaml",
        lambda content: content["claims"].update({"my claim": CLAIM}),
        ["artifacts/table6.yaml: claims: 'my claim' is no id: take letters, digits, _, . and -"],
    ),
    "a margin without a reason": (
        "artifacts/table6.yaml",
        put("claims", "T6.3", "margin_reason", value=None),
        ["table6.yaml: claims.T6.3: margin and margin_reason: give both"],
    ),
    "an equivalence without a margin": (
        "artifacts/table6.yaml",
        put("claims", "T6.3", "margin", value=None),
        ["table6.yaml: claims.T6.3: test equivalence needs a margin"],
    ),
    "a post_hoc without text": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "post_hoc", value=None),
        ["table6.yaml: claims.T6.1.post_hoc: say what was changed", "or remove the key"],
    ),
    "a post_hoc of spaces": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "post_hoc", value=" " * 30),
        ["table6.yaml: claims.T6.1.post_hoc: string should have at least 20 characters"],
    ),
    "seeds seen at an unknown scale": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "seen_seeds", value={"tinny": [6]}),
        ["table6.yaml: claims.T6.1.seen_seeds: unknown scale 'tinny'; did you mean 'tiny'?"],
    ),
    "seeds seen that are spent anyway": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "seen_seeds", value={"tiny": [6, 1]}),
        ["table6.yaml: claims.T6.1.seen_seeds.tiny: 1 judges no claim at this scale"],
    ),
    "a seed seen twice": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "seen_seeds", value={"tiny": [6, 6]}),
        ["table6.yaml: claims.T6.1.seen_seeds.tiny: must be distinct, got [6, 6]"],
    ),
    "a declaration without a commit": (
        "artifacts/table6.yaml",
        put("claims", "T6.1", "declared", "commit", value="HEAD"),
        ["claims.T6.1.declared.commit: needs text of the form", "[0-9a-f]{7,40}", "got 'HEAD'"],
    ),
    "seeds of an unknown artifact": (
        "scales/tiny.yaml",
        put("seeds", value={"tabel6": 3}),
        ["tiny.yaml: seeds: unknown artifact 'tabel6'; did you mean 'table6'?"],
    ),
    "a scale that cannot test an unknown claim": (
        "scales/tiny.yaml",
        put("not_testable", value={"T6.11": "too small"}),
        ["tiny.yaml: not_testable: unknown claim or artifact 'T6.11'; did you mean 'T6.1'?"],
    ),
    "a scale that does not say why it cannot test": (
        "scales/tiny.yaml",
        put("not_testable", value={"T6.1": " "}),
        ["tiny.yaml: not_testable.T6.1: say why"],
    ),
    "a replication with seeds in words": (
        "papers.yaml",
        put("replications", 0, "seeds", value="three"),
        ["papers.yaml: replications[0].seeds: needs a whole number, got 'three'"],
    ),
    "a replication with a difference in words": (
        "papers.yaml",
        put("replications", 0, "difference", value="small"),
        ["papers.yaml: replications[0].difference: needs a number, got 'small'"],
    ),
    "a replication of an unknown paper": (
        "papers.yaml",
        put("replications", 0, "of", value="diff_v11"),
        ["papers.yaml: replications[0].of: unknown paper 'diff_v11'; did you mean 'diff_v1'?"],
    ),
    "a claim that another artifact declares": (
        "artifacts/table2.yaml",
        lambda content: content["claims"].update({"T6.1": CLAIM}),
        ["artifacts/table6.yaml: claims.T6.1: table2 has it too; rename one"],
    ),
    "a claim that no artifact declares": (
        "artifacts/ablation_head_count.yaml",
        put("shows_claims", value=["T6.33"]),
        ["ablation_head_count.yaml: shows_claims: unknown claim 'T6.33'; did you mean 'T6.3'?"],
    ),
    "published values of an artifact that has none": (
        "artifacts/ablation_head_count.yaml",
        put("paper", value="table66"),
        ["ablation_head_count.yaml: paper: unknown artifact with published values 'table66'"],
    ),
    "a stand-in for a row that is not there": (
        "scales/tiny.yaml",
        put("stand_ins", value={"table2": {"recall_dif": "diff"}}),
        ["stand_ins.table2: 'recall_dif' is none of its rows; did you mean 'recall_diff'?"],
    ),
    "a stand-in in an artifact that is not there": (
        "scales/tiny.yaml",
        put("stand_ins", value={"tabel2": {"recall_diff": "diff"}}),
        ["stand_ins: unknown artifact 'tabel2'; did you mean 'table2'?"],
    ),
    "a stand-in that is no run": (
        "scales/tiny.yaml",
        put("stand_ins", value={"table2": {"recall_diff": "difff"}}),
        ["stand_ins.table2.recall_diff: unknown run 'difff'; did you mean 'diff'?"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_one_line_that_names_the_place(
    case: str, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config_folder)  # where there is no data/
    assert_one_line(CASES[case], config_folder)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("all.yaml", "all is the name of a group of artifacts; rename the file"),
        ("dex.yaml", "dex is the name of a paper; rename the file"),
        ("pretrain.yaml", "pretrain is the name of a rule of the workflow; rename the file"),
        ("mine.yml", "files end in .yaml here; rename it to mine.yaml"),
    ],
)
def test_a_file_that_could_not_be_asked_for_is_one_line(
    file: str, said: str, config_folder: Path
) -> None:
    path = config_folder / "artifacts" / file
    path.write_bytes((config_folder / "artifacts" / "table9.yaml").read_bytes())
    with pytest.raises(ConfigError) as caught:
        Plan.load(config_folder)
    assert str(caught.value) == f"{path}: {said}"


def test_every_rule_of_the_workflow_is_known(repository: Path) -> None:
    files = [repository / "Snakefile", *(repository / "workflow" / "rules").glob("*.smk")]
    rules = {name for file in files for name in re.findall(r"(?m)^rule (\w+):", file.read_text())}
    assert rules | {"all", "sweeps"} == TARGETS.keys()
