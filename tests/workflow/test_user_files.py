"""Changes of the user's files rerun jobs by content, not by modification time."""

import json
import os
import shutil
from pathlib import Path

import pytest
from small_workflow import Checkout, copy_of

SCALE = ("--config", "scale=smoke")
YEARS_AGO = 10**9
PACKED = "results/smoke/data/mine/manifest.json"
PACKING = {"Train the tokenizer of mine", "Tokenize mine"}
MEASURED = "results/smoke/evaluations/language_understanding_0shot/mine/0.json"
MEASURING = {"Evaluate language_understanding_0shot on mine, seed 0"}
ITEMS = "benchmarks=it{e}ms"
DATASETS = """
  mine:
    sources:
      mine: {kind: files, globs: ["te{x}ts/**/*.md", "te{x}ts/{x}.txt"], license: own}
    tokenizer: {kind: huggingface, name: "./to{k}ens"}
    validation_share: 0.5
"""
TASKS = ("arc_challenge", "arc_easy", "boolq", "hellaswag", "openbookqa", "piqa", "winogrande")


@pytest.fixture(scope="module")
def checkout(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Text, a tokenizer, items and a model, and jobs of which Snakemake knows that they read them.

    Their results are empty: Snakemake notes the inputs of what it is told to take as made.
    """
    checkout = copy_of(repository, tmp_path_factory.mktemp("user files"))
    folder = checkout.folder
    (folder / "results").mkdir()
    for name, text in (
        ("te{x}ts/{x}.txt", "some text"),
        ("te{x}ts/{{cookiecutter.name}} of {x}/README.md", "a page"),
        ("to{k}ens/tokenizer.json", "{}"),
        *((f"it{{e}}ms/{task}/validation.jsonl", "{}") for task in TASKS),
        ("mo{d}el/config.json", "{}"),
        ("mo{d}el/tokenizer.json", "{}"),
        ("mo{d}el/model.safetensors", "weights"),
        ("results/smoke/tokenizers/mine/tokenizer.json", "{}"),
        ("results/smoke/tokenizers/mine/tokenizer_config.json", "{}"),
        ("results/smoke/data/mine/shards/0", ""),
        ("results/smoke/data/mine/tokenizer.json", "{}"),
        ("results/smoke/data/mine/tokenizer_config.json", "{}"),
        (PACKED, "{}"),
        (MEASURED.replace(".json", "/items.json"), "{}"),
        (MEASURED, "{}"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with (folder / "config/datasets.yaml").open("a") as file:
        file.write(DATASETS)
    with (folder / "config/runs.yaml").open("a") as file:
        file.write("  mine: {label: Mine, pretrained: './mo{d}el'}\n")
    row = "      - {run: diff_3b_1t}\n"
    checkout.edit("config/artifacts/table1.yaml", row, f"{row}      - {{run: mine}}\n")
    options = ("--touch", "--cores", "1", "--forceall", PACKED, MEASURED)
    checkout.snakemake(*options, *SCALE, ITEMS)
    return checkout


def planned(checkout: Checkout, *targets: str) -> set[str]:
    return checkout.planned(*(targets or (PACKED, MEASURED)), *SCALE, ITEMS)


def test_a_touched_file_reruns_nothing(checkout: Checkout) -> None:
    for name in ("te{x}ts", "to{k}ens", "it{e}ms", "mo{d}el"):
        for path in (checkout.folder / name).rglob("*.*"):
            path.touch()
    assert planned(checkout) == set()


@pytest.mark.parametrize(
    ("name", "reruns"),
    [
        ("te{x}ts/{{cookiecutter.name}} of {x}/README.md", PACKING),
        ("to{k}ens/tokenizer.json", PACKING),
        ("it{e}ms/piqa/validation.jsonl", MEASURING),
        ("mo{d}el/model.safetensors", MEASURING),
    ],
)
def test_an_older_file_in_its_place_reruns_what_reads_it(
    name: str, reruns: set[str], checkout: Checkout
) -> None:
    path = checkout.folder / name
    aside = shutil.copy2(path, checkout.folder / "aside")
    path.write_text(path.read_text()[::-1])
    os.utime(path, (YEARS_AGO, YEARS_AGO))
    changed = planned(checkout)
    shutil.copy2(aside, path)
    assert changed == reruns


def test_an_incomplete_folder_stops_only_the_targets_that_read_it(checkout: Checkout) -> None:
    weights, items = (
        checkout.folder / name for name in ("mo{d}el/model.safetensors", "it{e}ms/piqa")
    )
    for moved, message in (
        (weights, "mo{d}el: has no weights"),
        (items, "contains neither validation"),
    ):
        aside = shutil.move(moved, checkout.folder / "aside")
        others = checkout.snakemake("--dry-run", "table6", *SCALE, ITEMS)
        ended = checkout.snakemake("--dry-run", "table1", *SCALE, ITEMS, check=False)
        shutil.move(aside, moved)
        assert "table" in others.stdout + others.stderr
        output = ended.stdout + ended.stderr
        lines = [line for line in output.splitlines() if line.startswith("error:")]
        assert ended.returncode != 0 and len(lines) == 1 and message in lines[0], output
        assert "Traceback" not in output


def test_a_listing_says_what_was_read(checkout: Checkout) -> None:
    assert planned(checkout, PACKED) == set()
    listings = (checkout.folder / "results/smoke/plan").glob("files-*/dataset-mine.jsonl")
    lines = [json.loads(line) for path in listings for line in path.read_text().splitlines()]
    assert ["te{x}ts/{x}.txt", 9] in [line[:2] for line in lines]
