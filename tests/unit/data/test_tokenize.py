"""Tokenization into shards: contents, workers, resuming and errors."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difftransformer.config.data import DatasetConfig
from difftransformer.data import tokenize as module
from difftransformer.data.documents import documents
from difftransformer.data.packed import PackedDataset
from difftransformer.data.shards import shard_name
from difftransformer.data.sources import open_sources
from difftransformer.data.tokenize import tokenize
from difftransformer.data.tokenizer import TextTokenizer, train_tokenizer
from difftransformer.errors import ConfigError, DataError

Configure = Callable[..., DatasetConfig]
Pack = Callable[..., PackedDataset]

ROWS = {
    "sources": {"rows": {"kind": "builtin", "name": "recall"}},
    "tokenizer": {"kind": "none"},
    "recall": {},
    "tokens": 64 * 3000,
}


def content(dataset: PackedDataset) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(dataset.folder.rglob("*.*"))}


def test_shards_hold_the_documents_in_order(
    stdlib: PackedDataset, tokenizer: Path, configure: Configure
) -> None:
    source = open_sources(configure())["stdlib"]
    opened = TextTokenizer(tokenizer)
    for name in ("train", "validation"):
        split = stdlib.split(name)
        expected = opened.encode([d.text for d in documents(source, name, 0.2)])
        assert np.array_equal(split.tokens[:], np.concatenate(expected))
        assert np.array_equal(split.document_ends(), np.cumsum([len(each) for each in expected]))
        assert all(split.tokens[end - 1 : end] == [opened.eos_id] for end in split.document_ends())
    manifest = stdlib.manifest
    assert len(manifest.splits["train"].shards) > 3
    assert (manifest.dtype, manifest.vocab_size, manifest.row_length) == ("uint16", 512, None)
    assert manifest.tokenizer == opened.entry
    assert manifest.sources["stdlib"].share == 1.0


def test_the_dataset_has_its_own_copy_of_the_tokenizer(
    stdlib: PackedDataset, tokenizer: Path
) -> None:
    """Snakemake touches what a job made; a link would make the job's input as new as that."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        ours, theirs = stdlib.folder / name, tokenizer.with_name(name)
        assert ours.read_bytes() == theirs.read_bytes() and not ours.samefile(theirs)


def test_files_that_change_during_packing_are_an_error(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.jsonl"
    lines = [
        json.dumps({"text": f"document {number} of some words " * 20}) for number in range(300)
    ]
    text.write_text("\n".join(lines))
    files = {"kind": "files", "globs": [str(text)], "license": "x"}
    settings = {"sources": {"files": files}, "tokens": 5000, "max_overlap": None}
    pack("untouched", **settings)
    real = module._pack_split

    def touched(*words: Any) -> Any:
        text.write_text(text.read_text() + "\n" + lines[0])
        return real(*words)

    monkeypatch.setattr(module, "_pack_split", touched)
    with pytest.raises(DataError, match="source files: its files changed while they were packed"):
        pack("touched", **settings)
    assert not (tmp_path / "touched" / "manifest.json").exists()


def test_the_number_of_workers_changes_nothing(stdlib: PackedDataset, pack: Pack) -> None:
    assert content(pack(workers=3)) == content(stdlib)


def test_completed_shards_are_reused(
    stdlib: PackedDataset, pack: Pack, caplog: pytest.LogCaptureFixture
) -> None:
    first = pack()
    (first.folder / "manifest.json").unlink()
    times = {path: path.stat().st_mtime_ns for path in first.folder.glob("shards/*.bin")}
    caplog.set_level("INFO")
    assert content(pack()) == content(stdlib)
    assert times == {path: path.stat().st_mtime_ns for path in first.folder.glob("shards/*.bin")}
    assert "finished shards" in caplog.text


def test_damaged_and_foreign_shards_are_not_reused(stdlib: PackedDataset, pack: Pack) -> None:
    first = pack()
    damaged = first.folder / "shards" / shard_name("train", 2)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    (damaged.parent / "train-00077.bin").write_bytes(b"of an older, longer corpus")
    (damaged.parent / ".train-00002.77.partial.bin").write_bytes(b"of a killed job")
    part = first.folder.with_name("data.state") / "validation-00000.part.json"
    part.write_text("{")
    assert content(pack()) == content(stdlib)
    pack(max_document_tokens=100)
    assert content(pack()) == content(stdlib)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_job_resumes_to_identical_bytes(
    workers: int,
    stdlib: PackedDataset,
    pack: Pack,
    configure: Configure,
    tokenizer: Path,
    tmp_path: Path,
) -> None:
    job = _start(configure(), tokenizer, tmp_path, workers)
    parts = tmp_path / "data.state"
    deadline = time.monotonic() + 30
    while len(list(parts.glob("*.part.json"))) < 2:
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert not (tmp_path / "data" / "manifest.json").exists()
    assert content(pack(workers=workers)) == content(stdlib)


SLOW_JOB = """
import sys, time
from pathlib import Path
from difftransformer.config.data import DatasetConfig
from difftransformer.data import tokenize as module

if __name__ == "__main__":
    dataset, tokenizer, output, workers = sys.argv[1:]

    def slowly(*arguments, write=module.save_checkpoint):
        write(*arguments)
        time.sleep(0.3)

    module.save_checkpoint = slowly
    dataset = DatasetConfig.model_validate_json(dataset)
    state = Path(output).with_name("data.state")
    module.tokenize(dataset, Path(tokenizer), Path(output), state, int(workers))
"""


def _start(
    dataset: DatasetConfig, tokenizer: Path, folder: Path, workers: int
) -> "subprocess.Popen[bytes]":
    """The same job in a process of its own, slowed down so that it can be caught half-way."""
    script = folder / "job.py"
    script.write_text(SLOW_JOB)
    arguments = [dataset.model_dump_json(), str(tokenizer), str(folder / "data"), str(workers)]
    return subprocess.Popen([sys.executable, str(script), *arguments])


def test_rows_are_packed_and_restartable(pack: Pack, configure: Configure) -> None:
    dataset = pack(**ROWS)
    manifest = dataset.manifest
    train = manifest.splits["train"]
    assert (train.documents, train.tokens, len(train.shards)) == (3000, 3000 * 65, 14)
    assert manifest.splits["validation"].documents == 600
    assert manifest.answer_positions == list(range(33, 65, 2))
    assert (manifest.row_length, manifest.vocab_size) == (65, 128)
    assert manifest.recall == configure(**ROWS).recall
    before = content(dataset)
    (dataset.folder / "manifest.json").unlink()
    (dataset.folder / "shards" / shard_name("train", 3)).unlink()
    assert content(pack(**ROWS)) == before
    rows = dataset.split("train").tokens[:].reshape(-1, 65)
    assert len(np.unique(rows, axis=0)) == 3000
    assert pack("other", **ROWS | {"seed": 1}).digest != dataset.digest


def test_the_digest_depends_on_content_not_location(stdlib: PackedDataset, pack: Pack) -> None:
    assert pack("elsewhere").digest == stdlib.digest
    assert pack("shorter", max_document_tokens=100).digest != stdlib.digest


def test_documents_are_cut_to_the_limit(pack: Pack) -> None:
    split = pack(max_document_tokens=100).split("train")
    lengths = np.diff(split.document_ends(), prepend=0)
    assert lengths.max() == 100


def test_bad_input(pack: Pack, configure: Configure, tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kind bpe needs a tokenizer"):
        tokenize(configure(), None, tmp_path / "a", tmp_path / "b", 1)
    with pytest.raises(ConfigError, match="kind none needs no tokenizer"):
        tokenize(configure(**ROWS), tokenizer, tmp_path / "a", tmp_path / "b", 1)
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "one.txt").write_text("one document")
    for name, message in [
        ("blank", "no text for training"),
        ("one", "two different documents; split"),
    ]:
        source = {"kind": "files", "globs": [f"{tmp_path}/{name}.txt"], "license": "x"}
        with pytest.raises(DataError, match=message):
            pack(name, sources={"mine": source})
        assert not (tmp_path / name / "manifest.json").exists()


@pytest.mark.parametrize("split_by", ["document", "package"])
def test_a_single_document_is_refused_with_a_fix(
    split_by: str, configure: Configure, tmp_path: Path
) -> None:
    cure = {"document": "two different documents; split", "package": "split_by: document"}
    error_starts = set()
    for number in range(20):
        path = tmp_path / str(number) / f"package{number}" / "a.txt"
        path.parent.mkdir(parents=True)
        path.write_text(f"{number} " + "some words about nothing at all " * 9, encoding="utf-8")
        source = {"kind": "files", "globs": [str(path.parents[1])], "license": "x"}
        source |= {"split_by": split_by}
        tokenizer = {"kind": "bpe", "vocab_size": 260}
        dataset = configure(sources={"mine": source}, validation_share=0.5, tokenizer=tokenizer)
        with pytest.raises(DataError, match=cure[split_by]) as caught:
            train_tokenizer(dataset, tmp_path / "tokenizer.json")
            tokenize(dataset, tmp_path / "tokenizer.json", tmp_path / "a", tmp_path / "b", 1)
        error_starts.add(str(caught.value).partition(":")[2][:10])
    assert error_starts == {" no text f", " no docume"}


def test_skipped_files_are_counted(
    pack: Pack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    corpus = tmp_path / "corpus"
    for name in (
        "a.txt",
        "b.csv",
        "deep/c.csv",
        "deep/README",
        "deep/d.md",
        ".git/config",
        ".DS_Store",
    ):
        path = corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {name}")
    globs = [str(corpus), f"{corpus}/deep*"]
    pack(sources={"mine": {"kind": "files", "globs": globs, "license": "x"}})
    unsupported, hidden = [text for text in caplog.messages if "skipped" in text]
    assert unsupported.startswith("source mine: skipped 3 files with other endings (.csv, none); ")
    assert unsupported.endswith("(`dataset`: the folder)")
    assert "skipped 2 hidden" in hidden and f"({corpus}/.DS_Store, {corpus}/.git)" in hidden
    caplog.clear()
    globs = [f"{corpus}/*.txt", f"{corpus}/deep/*.md"]
    pack(sources={"mine": {"kind": "files", "globs": globs, "license": "x"}})
    assert "skipped" not in caplog.text


def test_files_left_unread_by_the_budget_are_logged(
    pack: Pack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name} some words " * 100)
    source = {"kind": "files", "globs": [f"{tmp_path}/*.txt"], "license": "x"}
    pack("some", sources={"mine": source}, tokens=400, validation_share=1e-9)
    (line,) = [text for text in caplog.messages if "not read" in text]
    assert "the budget of 400 tokens" in line and "file 1 of 4" in line
    caplog.clear()
    pack("all", sources={"mine": source}, validation_share=1e-9)
    assert "not read" not in caplog.text


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_line_in_the_middle_is_named(workers: int, pack: Pack, tmp_path: Path) -> None:
    good = '{"text": "some words"}\n'
    (tmp_path / "a.jsonl").write_text(good * 9 + "oops\n" + good)
    source = {"kind": "files", "globs": [f"{tmp_path}/a.jsonl"], "license": "x"}
    with pytest.raises(DataError, match=r"a\.jsonl, line 10: not JSON"):
        pack(sources={"mine": source}, workers=workers)


def test_an_empty_validation_split_leaves_finished_files_unchanged(
    pack: Pack, tmp_path: Path
) -> None:
    dataset = pack()
    before = content(dataset)
    (tmp_path / "same.jsonl").write_text('{"text": "the same words"}\n' * 3)
    source = {"kind": "files", "globs": [f"{tmp_path}/same.jsonl"], "license": "x"}
    with pytest.raises(DataError, match="no document is left for validation"):
        pack(sources={"mine": source}, validation_share=1e-12)
    assert content(dataset) == before
