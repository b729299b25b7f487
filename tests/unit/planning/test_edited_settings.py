"""Edits of the configuration change the parameters of the expected jobs.

tests/workflow checks which jobs rerun; tests/unit/provenance/test_edits.py edits code.
"""

from pathlib import Path

import pytest

from difftransformer.planning.plan import Plan

RUNS = (
    *("transformer", "diff", "diff_no_groupnorm", "recall_transformer", "recall_diff"),
    *("long_diff", "diff_size_16", "adapted_full", "adapted_lora", "adapted_dex"),
)
DATASETS = ("stdlib_text", "long_text", "recall", "second_text")
EVALUATIONS = (
    *(("validation_slices", "diff"), ("recall", "recall_diff"), ("hallucination", "recall_diff")),
    *(("nll_by_position", "long_diff"), ("adaptation_source", "adapted_lora")),
)
TABLES = ("table6", "table6_recall", "table4", "evidence", "dex_methods")
FIGURES = ("table6", "figure3a", "dex_methods")
TIMINGS = ("throughput", "decoding")
LABEL = "  diff:\n    label: DIFF\n    color: 1\n"


def parameters(folder: Path) -> dict[str, str]:
    """Return the settings files of jobs at scale smoke, each named by its content."""
    plan = Plan.load(folder, {"scale": "smoke"})
    jobs, artifacts = plan.jobs, plan.artifacts
    return {
        **{f"tokenize {name}": jobs.dataset_config_file(name) for name in DATASETS},
        **{f"train {name}": jobs.write("run", jobs.run(name)) for name in RUNS},
        **{
            f"evaluate {suite} on {run}": jobs.evaluation_config_file(suite, run)
            for suite, run in EVALUATIONS
        },
        "n-grams": jobs.ngrams_config_file("stdlib_text", "validation_slices"),
        "judge": jobs.judgment_config_file("lexical", "hallucination", "recall_diff"),
        **{f"time {name}": artifacts.timing_file(name) for name in TIMINGS},
        **{f"table {name}": artifacts.config_file(name, "table") for name in TABLES},
        **{f"figure {name}": artifacts.config_file(name, "figure") for name in FIGURES},
        "verdicts": plan.verdicts_config_file(TABLES),
        "report": plan.report_config_file(TABLES),
    }


def of(prefix: str, *names: str) -> set[str]:
    return {f"{prefix} {name}" for name in names}


DIFF = ("diff", "diff_no_groupnorm", "recall_diff", "long_diff", "diff_size_16")
ADAPTED = of("train", "adapted_full", "adapted_lora", "adapted_dex")
TABLE6 = {"table table6", "figure table6", "report"}
DIFF_REPORTS = TABLE6 | {"table evidence", "figure figure3a", "verdicts"}
"""Jobs that show the run `diff`."""
EDITS: list[tuple[str, str, str, set[str]]] = [
    # edits that change no number
    ("runs.yaml", "runs:\n", "# a remark\nruns:\n\n", set()),
    (
        "runs.yaml",
        "    color: 1\n    base: transformer\n",
        "    base: transformer\n    color: 1\n",
        set(),
    ),
    ("config.yaml", "  uri: null ", "  uri: sqlite:///elsewhere.db ", set()),
    # runs, and runs that inherit from them
    (
        "runs.yaml",
        "overrides: {model: {attention: {variant: softmax}}}",
        "overrides: {model: {attention: {variant: softmax}, rope_theta: 5000.0}}",
        of("train", *RUNS) | of("time", *TIMINGS),
    ),
    (
        "runs.yaml",
        "{variant: diff_v1}",
        "{variant: diff_v1, norm_eps: 1.0e-6}",
        of("train", *DIFF) | of("time", "throughput"),
    ),
    ("runs.yaml", "{norm: false}", "{norm: false, lambda_init: 0.3}", of("train", DIFF[1])),
    (
        "runs.yaml",
        "{method: lora, rank: 8}",
        "{method: lora, rank: 4}",
        of("train", "adapted_lora"),
    ),
    ("runs.yaml", "{method: dex}", "{method: dex, share: 0.25}", of("train", "adapted_dex")),
    # scales
    ("scales/smoke.yaml", "weight_decay: 0.05", "weight_decay: 0.04", of("train", *RUNS)),
    (
        "scales/smoke.yaml",
        "{d_model: 16, ffn_dim: 48,",
        "{d_model: 16, ffn_dim: 64,",
        of("train", "diff_size_16"),
    ),
    ("scales/smoke.yaml", "rope_theta: 80000.0", "rope_theta: 9000.0", of("train", "long_diff")),
    ("scales/smoke.yaml", "{steps: 10, lr: 1.0e-3}", "{steps: 11, lr: 1.0e-3}", ADAPTED),
    # data
    (
        "scales/smoke.yaml",
        "validation_share: 0.2",
        "validation_share: 0.25",
        of("tokenize", "stdlib_text", "long_text"),
    ),
    ("datasets.yaml", "num_queries: 16", "num_queries: 8", of("tokenize", "recall")),
    # evaluations
    (
        "evaluations.yaml",
        "    n: 2 ",
        "    n: 3 ",
        {"evaluate validation_slices on diff", "n-grams"},
    ),
    (
        "scales/smoke.yaml",
        "recall: {samples: 32}",
        "recall: {samples: 16}",
        of("evaluate", "recall on recall_diff"),
    ),
    ("config.yaml", "content_share: 0.8", "content_share: 0.7", {"judge"}),
    (
        "scales/smoke.yaml",
        "    repeats: 3\n    backends",
        "    repeats: 4\n    backends",
        of("time", "throughput"),
    ),
    # tables, figures and the report
    ("runs.yaml", LABEL, LABEL.replace("DIFF", "V1"), DIFF_REPORTS),
    (
        "runs.yaml",
        LABEL,
        LABEL.replace("1", "7"),
        DIFF_REPORTS | of("table", "table4", "table6_recall"),
    ),
    ("artifacts/table6.yaml", "Cross-entropy in nats", "Cross-entropy", {"table table6", "report"}),
    (
        "artifacts/table6.yaml",
        "Top: validation loss",
        "Above: validation loss",
        {"figure table6", "report"},
    ),
    (
        "artifacts/table6.yaml",
        "valid: 3.062",
        "valid: 3.063",
        TABLE6 | {"table evidence", "verdicts"},
    ),
    (
        "artifacts/table6.yaml",
        "      - {run: diff_lambda_0}\n",
        "",
        {"table table6", "figure table6", "report"},
    ),
    ("papers.yaml", "shows: Ablations,", "shows: All ablations,", {"report"}),
    ("scales/smoke.yaml", "description: The wiring", "description: Wiring", {"report"}),
    # claims
    ("registry.yaml", "question: Does DIFF", "question: Will DIFF", {"verdicts"}),
    ("registry.yaml", "margin: 1.25", "margin: 1.3", {"verdicts"}),
    ("registry.yaml", "alpha: 0.05", "alpha: 0.04", {"verdicts"}),
]


@pytest.fixture(scope="module")
def before(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("plan"))
        return parameters(repository / "config")


@pytest.mark.parametrize(("file", "old", "new", "changed"), EDITS)
def test_an_edit_changes_the_parameters_of_its_jobs(
    config_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, str],
    file: str,
    old: str,
    new: str,
    changed: set[str],
) -> None:
    monkeypatch.chdir(config_folder.parent)
    text = (config_folder / file).read_text()
    assert old in text, f"{file} no longer has the text to replace"
    (config_folder / file).write_text(text.replace(old, new, 1))
    after = parameters(config_folder)
    assert {job for job in before if before[job] != after[job]} == changed
