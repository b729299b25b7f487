"""Notes on the training runs behind the rows of a section."""

import json
from collections.abc import Sequence
from pathlib import Path

from fake_configs import resolved_artifact
from fake_results import FakeResults, rewrite

from difftransformer.config.evaluation import Options
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.table_notes import format_range, seeds_note

RUNS = ("transformer", "diff")


def note(fake: FakeResults, seeds: tuple[int, ...] = (0, 1), runs: Sequence[str] = RUNS) -> str:
    """The note on some rows, after their trainings are written."""
    artifact = resolved_artifact("table6", seeds=seeds)
    part = artifact.sections[0]
    rows = [row for run in runs for row in part.rows if row.run == run]
    part = part.model_copy(update={"rows": rows})
    return SectionContext[Options](
        artifact, part, load_results(fake.results, "tiny")
    ).training_note()


def changed(path: Path, part: str, name: str, value: float) -> None:
    content = json.loads(path.read_text())
    group = content["settings"][part] if part in content["settings"] else content[part]
    group[name] = value
    rewrite(path, json.dumps(content))


def test_training_is_described_by_every_row_and_seed(small: FakeResults) -> None:
    for run in RUNS:
        for seed in (0, 1):
            small.language_model(run, seed)
    for path in small.results:
        if path.name == "training.json":
            changed(path, "metrics", "non_embedding_parameters", 2_000_000)
    assert note(small) == (
        "Training: 1.2M tokens per run; 2M parameters without embeddings; peak learning rate 4e-3 "
        "for every row."
    )
    last = next(path for path in small.results if str(path).endswith("runs/diff/1/training.json"))
    changed(last, "metrics", "tokens", 3_600_000)
    changed(last, "metrics", "non_embedding_parameters", 2_500_000)
    assert "1.2M to 3.6M tokens per run; 2M to 2.5M parameters" in note(small)
    assert "1.2M tokens per run" in note(small, seeds=(0,))
    changed(last, "training", "lr", 2e-3)
    assert "learning rate 4e-3 (Transformer); 2e-3 (DIFF)." in note(small)


def test_train_test_overlap_is_noted_for_every_row(small: FakeResults) -> None:
    for run in RUNS:
        small.language_model(run, 0)
    trained = [path for path in small.results if path.name == "training.json"]
    for path, overlap in zip(trained, (0.0049, 0.002), strict=True):
        content = json.loads(path.read_text())
        content["settings"]["held_out"] = {
            "documents": 325,
            "tokens": 273250,
            "n": 32,
            "overlap": overlap,
        }
        rewrite(path, json.dumps(content))
    held_out_note = note(small, seeds=(0,))
    assert (
        "325 documents, 0.273M tokens; 0.20% to 0.49% of the tokens are in 32-grams"
        in held_out_note
    )
    assert held_out_note.endswith(
        "training text; losses during training use the first 16.4K tokens."
    )
    for path in trained:
        changed(path, "held_out", "documents", 1)
    assert "Held-out text: 1 document, " in note(small, seeds=(0,))
    changed(trained[0], "held_out", "tokens", 104)  # all of it is less than was asked for
    assert note(small, seeds=(0,)).endswith("losses during training use the first 16.4K tokens.")
    changed(trained[1], "held_out", "tokens", 16384)
    assert note(small, seeds=(0,)).endswith("32-grams of the training text.")
    changed(trained[1], "held_out", "tokens", 16385)
    changed(trained[0], "training", "validation_tokens", None)
    changed(trained[1], "training", "validation_tokens", None)
    assert note(small, seeds=(0,)).endswith("32-grams of the training text.")


def test_intervals_are_named() -> None:
    assert seeds_note(resolved_artifact("table6", seeds=(5,))) == "One seed (5): no interval."
    three = seeds_note(resolved_artifact("table6"))
    assert three.startswith("3 seeds (0, 1, 2): mean ± half the 95% t interval")
    assert three.endswith("over seeds and, where recorded, items.")
    looked_at = resolved_artifact("table6").model_copy(update={"exploratory_seeds": [2, 1, 7]})
    assert seeds_note(looked_at).endswith("Exploratory seeds, excluded from tests of claims: 1, 2.")


def test_a_range_of_equal_numbers_is_that_number() -> None:
    assert format_range([1e9, 1e9]) == "1B" and format_range([4e8, 6.5e8, 1e9]) == "0.4B to 1B"
