"""Symbolic links in a corpus: links that lead outside are refused unless the globs name them."""

from pathlib import Path

import pytest
from small_sources import open_source, write_lines

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Cursor
from difftransformer.data.sources import Files, corpus_files, open_sources
from difftransformer.errors import DataError


def test_plan_and_job_read_linked_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data", "elsewhere/deep"):
        Path(name).mkdir(parents=True)
        write_lines(Path(name, "a.jsonl"), [name])
    Path("data/linked").symlink_to(tmp_path / "elsewhere")
    Path("data/again.jsonl").symlink_to(tmp_path / "elsewhere" / "deep" / "a.jsonl")
    globs = ["data", "data/linked", "data/again.jsonl"]
    settings = {"kind": "files", "globs": globs, "license": "x", "split_by": "package"}
    tokenizer = {"kind": "bpe", "vocab_size": 300}
    dataset = DatasetConfig.model_validate({"sources": {"mine": settings}, "tokenizer": tokenizer})
    source = open_sources(dataset)["mine"]
    assert isinstance(source, Files) and source.files == corpus_files(dataset)
    assert [doc.text for doc in source.read("train", Cursor())] == ["data", "elsewhere/deep"]
    Path("data/again.jsonl").unlink()
    globs.pop()
    dataset = DatasetConfig.model_validate({"sources": {"mine": settings}, "tokenizer": tokenizer})
    assert corpus_files(dataset) == [Path("data/a.jsonl"), Path("data/linked/deep/a.jsonl")]
    packages = [doc.package for doc in open_sources(dataset)["mine"].read("train", Cursor())]
    assert packages == [None, "0 linked"]


@pytest.mark.parametrize("pattern", ["data", "data/*", "data/**/*.txt", "dat*", "data/*.txt"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_link_out_of_a_corpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "own.txt").write_text("own")
    (tmp_path.parent / f"{tmp_path.name}-secret").write_text("secret")
    secret = Path("../..", f"{tmp_path.name}-secret")
    link = tmp_path / "data" / "000.txt"
    link.symlink_to(secret if relative else (link.parent / secret).resolve())
    with pytest.raises(DataError, match=r"data/000.txt: is a link to .*secret, outside") as error:
        open_source(kind="files", globs=[pattern], license="x")
    assert "globs of source mine" in str(error.value) and "\n" not in str(error.value)
    named = open_source(kind="files", globs=[pattern, "data/000.txt", "data/own.txt"], license="x")
    assert [doc.text for doc in named.read("train", Cursor())] == ["secret", "own"]


def test_a_linked_folder_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data/a", "elsewhere"):
        Path(folder).mkdir(parents=True)
        Path(folder, "x.txt").write_text(folder)
    Path("data/b").symlink_to("a")  # which stays within
    Path("mine").symlink_to("elsewhere")
    for globs, files in [(["data/*"], 1), (["mine"], 1), (["mine", "data"], 2), (["mine/*"], 1)]:
        assert len(open_source(kind="files", globs=globs, license="x").files) == files
    Path("data/c").symlink_to("../elsewhere")
    with pytest.raises(DataError, match=r"data/c: is a link to"):
        open_source(kind="files", globs=["data/c*"], license="x")
