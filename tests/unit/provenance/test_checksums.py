"""Checksums verify published files and compare two builds by content."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from difftransformer.cli import app
from difftransformer.errors import DataError
from difftransformer.provenance import checksums
from difftransformer.provenance.checksums import (
    CHECKSUMS,
    compare_builds,
    digest,
    read_checked,
    verify_file,
    write_checked,
)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """The main file of a job with one other file, in a folder below."""
    path = tmp_path / "result.json"
    other = tmp_path / "details" / "samples.jsonl"
    other.parent.mkdir()
    other.write_bytes(b"x" * 99)
    write_checked(path, {"loss": 0.1 + 0.2, "none": None}, [other])
    return path


def overwritten(path: Path, content: bytes, at: int = 0) -> None:
    """Write over a file in place: length and time of modification are what they were."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_what_was_published_is_read(main: Path) -> None:
    assert json.loads(read_checked(main)) == {"loss": 0.1 + 0.2, "none": None}
    verify_file(main.parent / "details" / "samples.jsonl", main)


@pytest.mark.parametrize("content", [b"\0", b"y"])
def test_a_changed_file_is_named_with_its_cure(main: Path, content: bytes) -> None:
    path = main.parent / "details" / "samples.jsonl"
    verify_file(path, main)
    overwritten(path, content, at=50)
    with pytest.raises(DataError, match="checksum mismatch") as e:
        verify_file(path, main)
    assert str(e.value).startswith(f"{path}: ")
    assert f"delete {main}, then rebuild it: `snakemake {main}`" in str(
        e.value
    ) and "\n" not in str(e.value)


def test_a_file_that_nobody_published_is_refused(main: Path) -> None:
    stray = main.with_name("stray.jsonl")
    stray.write_bytes(b"x" * 99)
    with pytest.raises(DataError, match="checksum mismatch"):
        verify_file(stray, main)
    with pytest.raises(DataError, match="cannot be read"):
        verify_file(main.with_name("gone.jsonl"), main)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(loss=0.5),
        lambda content: content.pop("none"),
        lambda content: content.pop(CHECKSUMS),
        lambda content: content[CHECKSUMS].pop("self"),
        lambda content: content[CHECKSUMS]["files"].clear(),
        lambda content: content[CHECKSUMS]["files"].update({"stray.jsonl": "0" * 64}),
    ],
)
def test_a_changed_main_file_is_refused(main: Path, change) -> None:
    content = json.loads(main.read_text())
    change(content)
    main.write_text(json.dumps(content))
    with pytest.raises(DataError, match="checksum mismatch"):
        read_checked(main)
    with pytest.raises(DataError, match="checksum mismatch"):
        verify_file(main.parent / "details" / "samples.jsonl", main)


def test_layout_of_the_json_does_not_matter(main: Path) -> None:
    main.write_text(json.dumps(json.loads(main.read_text())))
    assert json.loads(read_checked(main))["loss"] == 0.1 + 0.2


def test_short_files_have_their_plain_sha256(tmp_path: Path) -> None:
    for size in (0, 1, checksums._CHUNK, checksums._CHUNK + 1):
        path = tmp_path / str(size)
        path.write_bytes(os.urandom(size))
        assert digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("extra", [0, 1, 4096])
def test_blocks_are_summed_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(checksums, "BLOCK", 4096)
    monkeypatch.setattr(checksums, "_CHUNK", 1024)
    content = os.urandom(3 * 4096 + extra)
    path = tmp_path / "long"
    path.write_bytes(content)
    blocks = [content[start : start + 4096] for start in range(0, len(content), 4096)]
    joined = b"".join(hashlib.sha256(block).digest() for block in blocks)
    assert digest(path) == hashlib.sha256(joined).hexdigest()
    overwritten(path, bytes([content[5000] ^ 1]), at=5000)
    assert digest(path) != hashlib.sha256(joined).hexdigest()


def test_a_file_is_read_once_while_it_stays_untouched(
    main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = main.parent / "details" / "samples.jsonl"
    verify_file(path, main)
    monkeypatch.setattr(checksums, "_block", None)  # reading would fail
    verify_file(path, main)


def build(folder: Path, started: str = "now", weights: bytes = b"w", loss: float = 1.0) -> Path:
    for name in ("runs", "tables", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "runs" / "model.safetensors").write_bytes(weights)
    result = {"metrics": {"loss": loss}, "provenance": {"started": started}}
    write_checked(
        folder / "runs" / "training.json", result, [folder / "runs" / "model.safetensors"]
    )
    (folder / "tables" / "table6.csv").write_text("a,b\n")
    (folder / "tables" / ".table6.1.partial.csv").write_text("half")
    (folder / "logs" / "pretrain.log").write_text(started)
    return folder


def test_times_do_not_affect_the_comparison(tmp_path: Path) -> None:
    first, second = build(tmp_path / "one"), build(tmp_path / "other", "later")
    compared = compare_builds(first, second)
    assert [file.name for file in compared if file.same] == [
        "runs/model.safetensors",
        "runs/training.json",
        "tables/table6.csv",
    ]
    ended = CliRunner().invoke(app, ["verify", str(first), str(second)])
    assert ended.exit_code == 0
    assert "3 of 3 files are the same" in ended.output


def test_a_difference_is_listed_and_fails(tmp_path: Path) -> None:
    first = build(tmp_path / "one")
    second = build(tmp_path / "other", weights=b"v", loss=1.0000000000000002)
    (first / "tables" / "table6.csv").unlink()
    ended = CliRunner().invoke(app, ["verify", str(first), str(second)])
    assert ended.exit_code == 1
    words = [line.split() for line in ended.output.splitlines()]
    assert [(w[0], w[-1]) for w in words[:3]] == [
        ("DIFFERENT", "runs/model.safetensors"),
        ("DIFFERENT", "runs/training.json"),
        ("MISSING", "tables/table6.csv"),
    ]
    assert "0 of 3 files are the same" in ended.output


def test_a_damaged_json_differs(tmp_path: Path) -> None:
    first, second = build(tmp_path / "one"), build(tmp_path / "other")
    damaged = second / "runs" / "training.json"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert [file.same for file in compare_builds(first, second)] == [True, False, True]


def test_an_empty_rebuild_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing is built there"):
        compare_builds(build(tmp_path / "one"), tmp_path / "none")
