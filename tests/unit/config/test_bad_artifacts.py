"""Errors in tables, claims, proxies and replications are one line."""

import re
from pathlib import Path

import pytest
from refused_config import Case, assert_one_line, put

from difftransformer.config.papers import TARGETS
from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan

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
    "a figure of an evaluation that draws none": (
        "artifacts/dex_table9.yaml",
        put("figure", value={"caption": "c", "alt": "a"}),
        ["figure: evaluation hyperparameters makes none, its report.py has no figure(context)"],
    ),
    "an artifact with an unknown suite": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(suites=["recal"]),
        ["artifacts/table6.yaml", "unknown suite 'recal'; did you mean 'recall'?"],
    ),
    "a suite of another evaluation": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(suites=["outliers"]),
        [
            "artifacts/table6.yaml: sections[0].suites: 'outliers' is a suite of outliers, not of "
            "validation_slices; allowed: validation_slices"
        ],
    ),
    "an artifact with an unknown evaluation": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(evaluation="validation_slice"),
        ["artifacts/table6.yaml: sections[0].evaluation: unknown", "mean 'validation_slices'?"],
    ),
    "an artifact with an unknown key": (
        "artifacts/table6.yaml",
        put("sektions", value=[]),
        ["artifacts/table6.yaml: sektions: unknown key; did you mean 'sections'?"],
    ),
    "a section with options of another evaluation": (
        "artifacts/table6.yaml",
        lambda content: content["sections"][0].update(options={"threshold": 3.0}),
        ["artifacts/table6.yaml: sections[0].options: threshold: unknown key"],
    ),
    "an option of a wrong type": (
        "artifacts/recall_evidence.yaml",
        lambda content: content["sections"][0]["options"].update(budget="fifty"),
        ["artifacts/recall_evidence.yaml: sections[0].options: budget: needs a whole number"],
    ),
    "a claim about a run that is no row": (
        "registry.yaml",
        put("claims", "V1.loss", "contrasts", 0, "row", value="dif"),
        ["registry.yaml: claims.V1.loss.contrasts[0]: unknown row of evidence 'dif'", "'diff'?"],
    ),
    "a claim against a run that is no row": (
        "registry.yaml",
        put("claims", "V1.loss", "contrasts", 0, "baseline", value="transformr"),
        ["claims.V1.loss.contrasts[0]: unknown row of evidence 'transformr'", "'transformer'?"],
    ),
    "a claim about a column that its table lacks": (
        "registry.yaml",
        put("claims", "V1.loss", "contrasts", 0, "metric", value="vald"),
        ["claims.V1.loss.contrasts[0].metric: unknown column of evidence 'vald'", "'valid'?"],
    ),
    "a claim whose second control is no row": (
        "registry.yaml",
        put("claims", "V1.mechanism", "contrasts", 1, "baseline", value="recall_diff_lambda_1"),
        ["V1.mechanism.contrasts[1]: unknown row of recall_evidence 'recall_diff_lambda_1'"],
    ),
    "a claim of an unknown artifact": (
        "registry.yaml",
        put("claims", "V1.loss", "artifact", value="evidences"),
        ["claims.V1.loss.artifact: unknown artifact 'evidences'; did you mean 'evidence'?"],
    ),
    "a claim of an unknown paper": (
        "registry.yaml",
        put("claims", "V1.loss", "paper", value="diff_v3"),
        ["registry.yaml: claims.V1.loss.paper: unknown paper 'diff_v3'; did you mean 'diff_v"],
    ),
    "a claim with a blank in its id": (
        "registry.yaml",
        lambda content: content["claims"].update({"my claim": content["claims"]["V1.loss"]}),
        ["registry.yaml: claims: 'my claim' is not a valid id: use only letters"],
    ),
    "a margin without a reason": (
        "registry.yaml",
        put("claims", "V2.loss", "margin_reason", value=None),
        ["registry.yaml: claims.V2.loss: margin and margin_reason: give both"],
    ),
    "an equivalence without a margin": (
        "registry.yaml",
        put("claims", "Dex.control", "margin", value=None),
        ["registry.yaml: claims.Dex.control: test equivalence needs a margin"],
    ),
    "seeds of an unknown artifact": (
        "scales/tiny.yaml",
        put("seeds", value={"tabel6": 3}),
        ["tiny.yaml: seeds: unknown artifact 'tabel6'; did you mean 'table6'?"],
    ),
    "a scale that cannot test an unknown claim": (
        "scales/tiny.yaml",
        put("not_testable", value={"V1.los": "too small"}),
        ["tiny.yaml: not_testable: unknown claim or artifact 'V1.los'; did you mean 'V1.loss'?"],
    ),
    "a scale that does not say why it cannot test": (
        "scales/tiny.yaml",
        put("not_testable", value={"V1.loss": " "}),
        ["tiny.yaml: not_testable.V1.loss: say why"],
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
        put("replications", 0, "paper", value="diff_v11"),
        ["papers.yaml: replications[0].paper: unknown paper 'diff_v11'; did you mean 'diff_v1'?"],
    ),
    "published values of an artifact that has none": (
        "artifacts/ablation_head_count.yaml",
        put("paper", value="table66"),
        ["ablation_head_count.yaml: paper: unknown artifact with published values 'table66'"],
    ),
    "a stand-in for a row that is not there": (
        "scales/tiny.yaml",
        put("proxies", value={"table2": {"recall_dif": "diff"}}),
        ["proxies.table2: 'recall_dif' is none of its rows; did you mean 'recall_diff'?"],
    ),
    "a stand-in in an artifact that is not there": (
        "scales/tiny.yaml",
        put("proxies", value={"tabel2": {"recall_diff": "diff"}}),
        ["proxies: unknown artifact 'tabel2'; did you mean 'table2'?"],
    ),
    "a stand-in that is no run": (
        "scales/tiny.yaml",
        put("proxies", value={"table2": {"recall_diff": "difff"}}),
        ["proxies.table2.recall_diff: unknown run 'difff'; did you mean 'diff'?"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_are_one_line_and_name_the_location(
    case: str, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config_folder)  # where there is no data/
    assert_one_line(CASES[case], config_folder)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("all.yaml", "all is the name of a group of artifacts; rename the file"),
        ("dex.yaml", "dex is the name of a paper; rename the file"),
        ("pretrain.yaml", "pretrain is the name of a rule of the workflow; rename the file"),
        ("mine.yml", "files end in .yaml here; rename it to mine.yaml"),
    ],
)
def test_an_artifact_file_with_a_reserved_name_is_a_one_line_error(
    file: str, message: str, config_folder: Path
) -> None:
    path = config_folder / "artifacts" / file
    path.write_bytes((config_folder / "artifacts" / "table9.yaml").read_bytes())
    with pytest.raises(ConfigError) as caught:
        Plan.load(config_folder)
    assert str(caught.value) == f"{path}: {message}"


def test_every_rule_of_the_workflow_is_known(repository: Path) -> None:
    files = [repository / "Snakefile", *(repository / "workflow" / "rules").glob("*.smk")]
    rule = r"(?m)^(?:rule|use rule \w+ as) (\w+)(?: with)?:"
    rules = {name for file in files for name in re.findall(rule, file.read_text())}
    assert rules | {"all", "sweeps"} == TARGETS.keys()
