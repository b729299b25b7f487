"""A forced training starts again; a training without outputs is published again."""

import shutil
from pathlib import Path

import pytest
from small_workflow import Checkout

from difftransformer.reporting.verdict_job import read_verdicts

RUN = "diff_no_groupnorm"
RESULT = f"results/smoke/runs/{RUN}/0/training.json"
AGAIN, PUBLISHED = "was forced: starting from scratch", "publishing it again without training"


@pytest.fixture(scope="module")
def built(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the finished workflow to train again."""
    folder = tmp_path_factory.mktemp("forced") / "one"
    return Checkout(Path(shutil.copytree(finished.folder, folder, symlinks=True)))


def training(checkout: Checkout, *words: str) -> str:
    """Log of the training of the run after a call; empty where it was left alone."""
    log = checkout.folder / f"results/smoke/logs/pretrain/{RUN}/0.log"
    log.unlink(missing_ok=True)
    others = {path: path.stat().st_mtime_ns for path in others_of(checkout)}
    stderr = checkout.snakemake(*words, "--cores", "2").stderr
    verdicts = read_verdicts(checkout.folder / "results/smoke/verdicts.json").summary
    assert RUN in stderr and verdicts
    assert "\n".join([*verdicts, "report: results/smoke/report/index.html"]) in stderr
    assert others == {path: path.stat().st_mtime_ns for path in others_of(checkout)}
    return log.read_text()


def others_of(checkout: Checkout) -> list[Path]:
    paths = checkout.folder.glob("results/smoke/runs/*/0/training.json")
    return [path for path in paths if RUN not in path.parts]


@pytest.mark.parametrize(
    "words",
    [
        ("-f", RESULT),
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (("table6", "--forcerun", RESULT), (RESULT, "-R", "pretrain"))
        ),
    ],
    ids=" ".join,
)
def test_a_forced_training_starts_from_scratch(built: Checkout, words: tuple[str, ...]) -> None:
    weights = built.folder / Path(RESULT).with_name("model.safetensors")
    before = weights.read_bytes()
    log = training(built, *words)
    assert AGAIN in log and "resuming" not in log and "step 200/200" in log
    assert weights.read_bytes() == before


def test_outputs_that_are_gone_are_published_again(built: Checkout) -> None:
    (built.folder / RESULT).unlink()
    log = training(built, RESULT)
    assert PUBLISHED in log and "resuming from the checkpoint of step 200" in log


@pytest.mark.slow
def test_forcing_a_target_says_what_trains_it_again(built: Checkout) -> None:
    ended = built.snakemake("table6", "-R", "table6", "--cores", "1")
    lines = [line for line in ended.stderr.splitlines() if line.startswith("table6: ")]
    assert lines == [
        "table6: a target has no work of its own to force; `make rerun ABLATION=table6` trains and "
        "evaluates it again"
    ]
