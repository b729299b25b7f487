"""Jobs that an edit of one size reruns in a finished figure of two sizes."""

import shutil
from pathlib import Path

import pytest
from small_workflow import Checkout

pytestmark = pytest.mark.slow
END = {"Build the table figure3a", "Draw the figure figure3a", "Write the report"}


@pytest.fixture(scope="module")
def scaled(
    finished: Checkout, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Checkout:
    """The finished workflow, with figure 3a of two sizes built on top of it."""
    folder = tmp_path_factory.mktemp("scaled") / "checkout"
    shutil.copytree(finished.folder, folder)
    shutil.copy(repository / "config/artifacts/figure3a.yaml", folder / "config/artifacts")
    checkout = Checkout(folder)
    checkout.edit("config/scales/smoke.yaml", "[size_16, ablation, size_48]", "[size_16, ablation]")
    checkout.snakemake("figure3a", "--cores", "2")
    return checkout


def test_what_another_table_trained_is_not_trained_again(scaled: Checkout) -> None:
    assert scaled.planned("figure3a") == set()
    trained = {path.name for path in (scaled.folder / "results/smoke/runs").iterdir()}
    assert trained == {
        "transformer", "diff", "diff_no_groupnorm", "transformer_size_16", "diff_size_16",
    }  # fmt: skip


def test_editing_one_size_reruns_that_size(scaled: Checkout) -> None:
    scaled.edit("config/scales/smoke.yaml", "ffn_dim: 48,", "ffn_dim: 64,")
    runs = ("transformer_size_16", "diff_size_16")
    assert scaled.planned("figure3a") == END | {
        text
        for run in runs
        for text in (f"Train {run}, seed 0", f"Evaluate validation_slices on {run}, seed 0")
    }
    scaled.edit("config/scales/smoke.yaml", "ffn_dim: 64,", "ffn_dim: 48,")
