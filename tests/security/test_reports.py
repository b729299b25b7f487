"""A script in a corpus or a label is text wherever a workflow that really ran shows it."""

from pathlib import Path

from small_workflow import HOSTILE, Checkout
from tokenizers import Tokenizer

from difftransformer.data.packed import PackedDataset


def test_a_script_in_corpus_and_labels_runs_nowhere(finished: Checkout) -> None:
    results = finished.folder / "results" / "smoke"
    assert HOSTILE in corpus(results / "data" / "stdlib_text")
    paths = [path for kind in ("html", "svg", "md") for path in results.rglob(f"*.{kind}")]
    assert {path.suffix for path in paths} == {".html", ".svg", ".md"}
    texts = {path: path.read_text() for path in paths}
    assert not [path for path, text in texts.items() if "<script>alert" in text]
    pages = [text for path, text in texts.items() if path.parent.name == "report"]
    assert sum("&lt;script&gt;alert" in text for text in pages) > 1  # a page, and the one of all
    data = [path.read_text() for path in (results / "report" / "data").glob("*.js")]
    assert any("\\u003cscript>alert" in text for text in data)
    assert not [text for text in data if "<script" in text]


def corpus(folder: Path) -> str:
    """Training text as the models read it."""
    tokens = PackedDataset.open(folder).split("train").tokens[:].tolist()
    text: str = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(tokens)
    return text
