"""Damaged or incomplete checkpoints and shards are detected, named and replaced."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from attempts import DATASET, SUITE, MakeRebuild, Rebuild
from safetensors.torch import load_file, save_file
from spoiling import zeroed

TENSORS, SUMS = "tensors.safetensors", "sums.json"


RUN, EVALUATED = "runs/diff/0", f"evaluations/{SUITE}/diff/0.json"
NGRAMS = f"frequent_ngrams/{DATASET}/{SUITE}"


def long(value: Any) -> ParameterSet:
    return pytest.param(value, marks=pytest.mark.exhaustive)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


def without_optimizer(path: Path) -> None:
    """As by a tool that keeps the weights alone, and mends the sums."""
    tensors = {name: t for name, t in load_file(path).items() if not name.startswith("exp_avg.")}
    save_file(tensors, path)
    sums = json.loads((path.parent / SUMS).read_text())
    sums[TENSORS] = hashlib.sha256(path.read_bytes()).hexdigest()
    (path.parent / SUMS).write_text(json.dumps(sums))


@pytest.mark.parametrize("name", [TENSORS, *(long(n) for n in ("state.json", SUMS))])
@pytest.mark.parametrize("spoil", [flip_a_bit, long(truncate), long(Path.unlink)])
def test_damaged_checkpoint_is_skipped(
    half_trained: Rebuild, name: str, spoil: Callable[[Path], None]
) -> None:
    check(half_trained, lambda folder: spoil(folder / name))


def test_intact_checkpoint_with_missing_tensors_is_kept(half_trained: Rebuild) -> None:
    """As where other versions of libraries give weights other names."""
    *_, before, newest = half_trained.checkpoints()
    without_optimizer(newest / TENSORS)
    status, output = half_trained.run("pretrain")
    assert status == 2 and newest.is_dir()
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert f"{newest.name} is intact but cannot be read here" in line
    assert "exp_avg." in line and "install the versions that wrote it (torch" in line
    shutil.rmtree(newest)
    assert f"checkpoint of step {int(before.name[-8:])}" in half_trained.complete("pretrain")
    half_trained.assert_as_undisturbed("runs/")


def check(rebuild: Rebuild, spoil: Callable[[Path], None]) -> str:
    *_, before, newest = rebuild.checkpoints()
    spoil(newest)
    output = rebuild.complete("pretrain")
    assert f"{newest.name} is damaged" in output
    assert f"resuming from the checkpoint of step {int(before.name[-8:])}" in output
    rebuild.assert_as_undisturbed("runs/")
    return output


def test_training_restarts_when_all_checkpoints_are_damaged(half_trained: Rebuild) -> None:
    damaged = half_trained.checkpoints()
    for folder in damaged:
        flip_a_bit(folder / TENSORS)
    output = half_trained.complete("pretrain")
    assert output.count("is damaged") == len(damaged)
    assert "resuming" not in output
    assert f"no complete checkpoint is left (damaged: {damaged[0].name}, " in output
    assert "training starts from step 0" in output
    half_trained.assert_as_undisturbed("runs/")


@pytest.mark.parametrize("spoil", [flip_a_bit, long(truncate)])
@pytest.mark.parametrize(
    ("shard", "rule", "missing"),
    [
        ("train-00001.bin", "pretrain", ("runs/diff",)),
        ("train-00001.bin", "count_ngrams", ("frequent_ngrams",)),
        ("validation-00000.bin", "evaluate", ("evaluations/*/diff",)),
    ],
)
def test_a_damaged_shard_is_named_and_made_again(
    rebuild: MakeRebuild,
    shard: str,
    rule: str,
    missing: tuple[str, ...],
    spoil: Callable[[Path], None],
    finished,
) -> None:
    made = rebuild(*missing)
    state = finished.folder / "results" / "smoke" / "state" / "tokenize"
    shutil.copytree(state, made.state / "tokenize")
    path = made.results / "data" / DATASET / "shards" / shard
    spoil(path)
    status, output = made.run(rule)
    assert status == 2
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert shard in line and "delete its manifest.json" in line and "snakemake" in line
    path.parent.with_name("manifest.json").unlink()
    made.complete("tokenize", rule)
    made.assert_as_undisturbed()


def another_digit(path: Path) -> None:
    """Change a number so that the file stays JSON of the same length."""
    before = path.stat()
    path.write_text(path.read_text().replace("0.", "1.", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


@pytest.mark.parametrize(
    ("name", "spoil", "reader", "main", "maker"),
    [
        (f"{RUN}/model.safetensors", zeroed, "evaluate", f"{RUN}/training.json", "pretrain"),
        (f"{RUN}/config.json", another_digit, "evaluate", f"{RUN}/training.json", "pretrain"),
        (f"{RUN}/training.json", another_digit, "evaluate", f"{RUN}/training.json", "pretrain"),
        (f"{NGRAMS}.npy", zeroed, "evaluate", f"{NGRAMS}.sha256.json", "count_ngrams"),
        (EVALUATED, another_digit, "table", EVALUATED, "evaluate"),
    ],
)
def test_damaged_output_gives_an_error_and_no_result(
    name: str,
    spoil: Callable[[Path], None],
    reader: str,
    main: str,
    maker: str,
    rebuild: MakeRebuild,
) -> None:
    dropped = (f"evaluations/{SUITE}/diff/*",) if reader == "evaluate" else ()
    made = rebuild("tables/*", *dropped)
    spoil(made.results / name)
    status, output = made.run(reader)
    assert status == 2 and "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert f"{name}: checksum mismatch; delete " in line
    assert f"`snakemake results/smoke/{main}`" in line
    stale_output = EVALUATED if dropped else "tables/table6.csv"
    assert not (made.results / stale_output).exists()
    (made.results / main).unlink()
    made.complete(*dict.fromkeys((maker, reader, "table")))
    made.assert_as_undisturbed("tables/table6")
    made.assert_as_undisturbed("runs/")
