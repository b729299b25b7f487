"""File, Hub and built-in sources: order, splits, licenses and errors."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_sources import open_source, write_lines

from difftransformer.config.data import DatasetConfig, FilesSource, HubSource
from difftransformer.data.documents import Cursor, Source, documents
from difftransformer.data.packed import SPLITS
from difftransformer.data.sources import Files, corpus_files
from difftransformer.errors import DataError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    write_lines(tmp_path / "b.jsonl", [f"b{n}" for n in range(5)])
    write_lines(tmp_path / "a.jsonl", [f"a{n}" for n in range(5)])
    (tmp_path / "c.txt").write_text("c")
    monkeypatch.chdir(tmp_path)
    return open_source(kind="files", globs=["*.jsonl", "c.*", "a.jsonl"], license="CC0-1.0")


@pytest.fixture
def hub(tmp_path: Path) -> Source:
    pq.write_table(pa.table({"text": [f"h{n}" for n in range(7)]}), tmp_path / "train.parquet")
    return open_source(kind="hub", dataset=str(tmp_path), revision="1", license="CC0-1.0")


@pytest.fixture
def stdlib() -> Source:
    return open_source(kind="builtin", name="stdlib_text", max_bytes=300_000)


def test_files_are_read_sorted_and_once(files: Source) -> None:
    read = list(files.read("train", Cursor()))
    expected = [f"a{n}" for n in range(5)] + [f"b{n}" for n in range(5)] + ["c"]
    assert [document.text for document in read] == expected
    assert {document.license for document in read} == {"CC0-1.0"}
    assert files.origin == "3 files of *.jsonl, c.*, a.jsonl"


@pytest.mark.parametrize("name", ["files", "hub", "stdlib"])
def test_reading_resumes_from_any_cursor(name: str, request: pytest.FixtureRequest) -> None:
    source: Source = request.getfixturevalue(name)
    everything = list(source.read("train", Cursor()))
    assert len(everything) > 5
    for number, document in enumerate(everything):
        assert list(source.read("train", document.cursor)) == everything[number + 1 :]


@pytest.mark.parametrize("name", ["files", "hub", "stdlib"])
def test_splits_are_disjoint_and_complete(name: str, request: pytest.FixtureRequest) -> None:
    source: Source = request.getfixturevalue(name)
    everything = [document.text for document in source.read("train", Cursor())]
    parts = [[d.text for d in documents(source, split, 0.3)] for split in ("train", "validation")]
    assert sorted(parts[0] + parts[1]) == sorted(text for text in everything if text.strip())
    assert all(parts)


def stdlib_packages(split: str, **changes: Any) -> set[str | None]:
    source = open_source(**STDLIB | {"split_by": "package", "max_bytes": 2_000_000} | changes)
    return {document.package for document in documents(source, split, 0.4)}


def test_a_package_of_the_standard_library_is_in_one_split() -> None:
    train, validation = (stdlib_packages(split) for split in ("train", "validation"))
    assert train.isdisjoint(validation) and min(len(train), len(validation)) > 5
    assert "0 encodings" in train | validation
    assert stdlib_packages("train", split_by="document") == {None}


def test_the_first_folder_below_a_glob_is_a_package(tmp_path: Path) -> None:
    for name in ("one/a", "one/deep/b", "two/a", "alone"):
        path = tmp_path / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    globs = {"globs": [f"{tmp_path}/**/*.txt"], "kind": "files", "license": "x"}
    for split_by, packages in [
        ("document", [None] * 4),
        ("package", [None, *["0 one"] * 2, "0 two"]),
    ]:
        read = open_source(**globs, split_by=split_by).read("train", Cursor())
        assert [document.package for document in read] == packages


def test_named_validation_files_replace_the_hash_split(tmp_path: Path) -> None:
    write_lines(tmp_path / "x.train.jsonl", [f"t{n}" for n in range(20)])
    write_lines(tmp_path / "x.validation.jsonl", [f"v{n}" for n in range(20)])
    source = open_source(
        kind="files",
        globs=[f"{tmp_path}/*.train.jsonl"],
        validation=[f"{tmp_path}/*.validation.jsonl"],
        license="MIT",
    )
    assert {d.text[0] for d in documents(source, "train", 0.5)} == {"t"}
    assert len(list(documents(source, "train", 0.5))) == 20
    assert {d.text[0] for d in documents(source, "validation", 0.5)} == {"v"}


def test_licenses_can_be_read_from_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "terms": "X"}\n{"text": "b", "terms": "Y"}\n')
    source = open_source(kind="files", globs=[str(path)], license="Z", license_field="terms")
    assert [d.license for d in source.read("train", Cursor())] == ["X", "Y"]


def test_stdlib_is_a_sample_without_tests_and_packages(stdlib: Source) -> None:
    read = list(stdlib.read("train", Cursor()))
    assert 200_000 < sum(len(document.text.encode()) for document in read) <= 300_000
    names = [name for name, _ in stdlib.identity()[1]]
    assert names != sorted(names)
    assert "standard library of Python 3." in stdlib.origin
    assert stdlib.identity() == open_source(**STDLIB).identity()


STDLIB = {"kind": "builtin", "name": "stdlib_text", "max_bytes": 300_000}


def test_jsonl_folder_through_datasets(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.jsonl", ["one", "two"])
    write_lines(tmp_path / "test.jsonl", ["three"])
    source = open_source(
        kind="hub", dataset=str(tmp_path), revision="1", license="x", validation_split="test"
    )
    assert [d.text for d in documents(source, "train", 0.5)] == ["one", "two"]
    assert [d.text for d in documents(source, "validation", 0.5)] == ["three"]


def test_changes_in_a_local_hub_folder_change_its_identity(tmp_path: Path) -> None:
    corpus, tokenizer = tmp_path / "corpus", tmp_path / "tokenizer"
    for folder in (corpus / "data", tokenizer):
        folder.mkdir(parents=True)
    text = corpus / "data" / "train.jsonl"
    write_lines(text, ["one", "two"])
    (tokenizer / "tokenizer.json").write_text("{}")
    settings = {"kind": "hub", "dataset": str(corpus), "revision": "1", "license": "x"}
    before = open_source(**settings).identity()
    dataset = DatasetConfig.model_validate(
        {"sources": {"hub": settings}, "tokenizer": {"kind": "huggingface", "name": str(tokenizer)}}
    )
    assert set(corpus_files(dataset)) == {text, tokenizer / "tokenizer.json"}
    (tmp_path / "elsewhere").mkdir()
    (corpus / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"linked: is a link to .*elsewhere, outside"):
        corpus_files(dataset)
    (corpus / "linked").unlink()
    (corpus / "linked").symlink_to(corpus / "data")
    assert len(corpus_files(dataset)) == 2
    write_lines(text, ["one", "three"])
    assert open_source(**settings).identity() != before
    named = open_source(**settings | {"dataset": "owner/name"})
    assert named.identity() == open_source(**settings | {"dataset": "owner/name"}).identity()


def test_a_glob_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"source mine: no file matches '.*nothing\*'"):
        open_source(kind="files", globs=[f"{tmp_path}/nothing*"], license="x")


def test_training_on_validation_files_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", ["a"])
    everything = [f"{tmp_path}/*.jsonl"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "linked.jsonl").symlink_to(tmp_path / "a.jsonl")
    for validation in (
        everything,
        [f"{tmp_path}/other/../*.jsonl"],
        [f"{tmp_path}/other/linked.jsonl"],
    ):
        with pytest.raises(DataError, match=r"matched by both globs and validation"):
            open_source(kind="files", globs=everything, validation=validation, license="x")


def test_a_file_matched_by_two_globs_is_read_once(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", ["a"])
    globs = [f"{tmp_path}/*.jsonl", f"{tmp_path}/./a.jsonl"]
    source = open_source(kind="files", globs=globs, license="x")
    assert [path.name for path in source.files] == ["a.jsonl"]
    assert source.origin == f"1 file of {', '.join(globs)}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"text_field": "body"},
            r"row 0 of .* has no text in 'body'; its fields are text: set text_field of the source",
        ),
        ({"template": "{body}"}, r"row 0 of .* has no text in '\{body\}'; .*: set template of the"),
        ({"split": "test"}, r"source mine: .* at 1 cannot be loaded .*check name"),
        ({"config": "nope"}, r"source mine: .* at 1 cannot be loaded"),
        ({"dataset": "no/such/folder"}, r"source mine: no/such/folder at 1 cannot be loaded"),
    ],
)
def test_bad_hub_settings_are_a_one_line_error(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    write_lines(tmp_path / "train.jsonl", ["one"])
    source = open_source(
        **{"kind": "hub", "dataset": str(tmp_path), "revision": "1", "license": "x"} | changes
    )
    with pytest.raises(DataError, match=message) as caught:
        list(source.read("train", Cursor()))
    assert "\n" not in str(caught.value)


def test_a_folder_includes_all_readable_files_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/one.md", "a/deep/two.txt", "b/three.jsonl", "b/picture.png", "b/.hidden"):
        path = Path("data") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": name}) if path.suffix == ".jsonl" else name)
    config = FilesSource(
        kind="files", globs=["data"], license="mine", license_field="license", split_by="package"
    )
    documents_read = list(Files("source", config).read("train", Cursor()))
    assert [document.text for document in documents_read] == [
        "a/deep/two.txt",
        "a/one.md",
        "b/three.jsonl",
    ]
    assert [document.package for document in documents_read] == ["0 a", "0 a", "0 b"]
    assert {document.license for document in documents_read} == {"mine"}
    (tmp_path / "data" / "c").mkdir()
    for pattern, texts in [
        ("data/a*", ["a/deep/two.txt", "a/one.md"]),
        ("data/*", ["a/deep/two.txt", "a/one.md", "b/three.jsonl"]),
        ("data/*/*", ["a/deep/two.txt", "a/one.md", "b/picture.png", "b/three.jsonl"]),
    ]:
        matched = Files("source", config.model_copy(update={"globs": [pattern]}))
        assert [path.relative_to("data").as_posix() for path in matched.files] == texts
    with pytest.raises(DataError, match=r"no file matches 'data/c\*'"):
        Files("source", config.model_copy(update={"globs": ["data/c*"]}))
    with pytest.raises(DataError, match=r"no file matches 'nothing'.*\.txt, \.md, \.jsonl"):
        Files("source", config.model_copy(update={"globs": ["nothing"]}))


HIDDEN = (
    *(".git/notes.md", ".DS_Store", "a/.ipynb_checkpoints/one.txt", "__MACOSX/._one.txt"),
    "__MACOSX/a/._two.jsonl",
)


def test_hidden_files_are_skipped(tmp_path: Path) -> None:
    for name in ("a/one.txt", "a/two.jsonl", *HIDDEN):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0\5\x16\7" if "._" in name else b'{"text": "seen"}')
    (tmp_path / "data" / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    for pattern in ("data", "data/*"):
        config = FilesSource(kind="files", globs=[f"{tmp_path}/{pattern}"], license="mine")
        source = Files("mine", config)
        assert [path.name for path in source.files] == ["one.txt", "two.jsonl"]
        hidden = {
            path.relative_to(tmp_path / "data").as_posix() for path in source.skipped_files[1]
        }
        below = {"a/.ipynb_checkpoints", "__MACOSX/._one.txt", "__MACOSX/a/._two.jsonl"}
        assert hidden == below | ({".git", ".DS_Store", "gone.txt"} if pattern == "data" else set())
    git_folder = FilesSource(kind="files", globs=[f"{tmp_path}/data/.git"], license="mine")
    assert [path.name for path in Files("mine", git_folder).files] == ["notes.md"]
    copied = {"kind": "hub", "dataset": str(tmp_path / "data"), "revision": "1", "license": "x"}
    assert [path.name for path in HubSource.model_validate(copied).files] == [
        "one.txt",
        "two.jsonl",
    ]


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "a.txt").write_text("a")
    real = os.scandir

    def scandir(path: str) -> Any:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr("os.scandir", scandir)  # root may read everything
    config = FilesSource(kind="files", globs=[str(tmp_path)], license="mine")
    with pytest.raises(DataError, match=r"locked: this folder cannot be read \(Permission"):
        Files("mine", config)


def test_the_error_on_a_folder_of_tables_explains_how_to_read_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbftext,more\n"one\ntwo",\n,b\nthree,c\n')
    files = {"kind": "files", "globs": [str(tmp_path)], "license": "x"}
    with pytest.raises(DataError, match=r"there are 1 of \.csv\); convert .* `kind: hub`"):
        open_source(**files)
    read = open_source(kind="hub", dataset=str(tmp_path), revision="1", license="x")
    assert [document.text for document in read.read("train", Cursor())] == ["one\ntwo", "", "three"]
    split = [document.text for half in SPLITS for document in documents(read, half, 0.5)]
    assert sorted(split) == ["one\ntwo", "three"]


def test_null_columns_of_the_hub_give_no_text(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", None], "more": [{"b": "c"}, {"b": None}]})
    pq.write_table(table, tmp_path / "train.parquet")
    settings = {"kind": "hub", "dataset": str(tmp_path), "revision": "1", "license": "x"}
    for changes, texts in [({}, ["a", ""]), ({"template": "{text}: {more[b]}"}, ["a: c", ""])]:
        read = open_source(**settings, **changes).read("train", Cursor())
        assert [document.text for document in read] == texts
