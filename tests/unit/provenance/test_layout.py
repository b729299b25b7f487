"""The results folder: one module defines its names, and wildcards find its files."""

import ast
from collections.abc import Iterator
from pathlib import Path

from difftransformer.provenance import layout
from difftransformer.provenance.layout import Layout

SOURCES = Path(layout.__file__).parents[2]
JOINING = {"Path", "glob", "join", "joinpath", "rglob", "with_name"}
OTHER_FOLDERS = {
    "evaluations/hallucination/settings.py": {"data"},  # in an archive of the hub
    "difftransformer/config/evaluations.py": {"evaluations"},  # folder of the package
    "difftransformer/evaluation/metric_validation.py": {"evaluations"},
    "difftransformer/tracking/views.py": {"runs"},  # of MLflow's pages
    "reporting/site/pages.py": {"data", "figures"},  # in the folder of a report
    "difftransformer/publishing/card.py": {"runs"},  # an example in a message
}


def joined(tree: ast.AST) -> Iterator[str]:
    """Texts that a module joins into paths."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                parts = [left, right]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in JOINING:
                parts = node.args
            case ast.JoinedStr(values=parts):
                pass
            case _:
                continue
        texts = (part.value for part in parts if isinstance(part, ast.Constant))
        within = isinstance(node, ast.JoinedStr)
        yield from (text for text in texts if isinstance(text, str) and ("/" in text or not within))


def test_no_other_module_names_a_file_or_folder_of_the_results() -> None:
    own = Path(layout.__file__)
    nodes = (
        node for node in ast.walk(ast.parse(own.read_text())) if isinstance(node, ast.Constant)
    )
    texts = [node.value for node in nodes if isinstance(node.value, str) and " " not in node.value]
    names = {part for text in texts for part in text.split("/") if part.strip(".*")}
    names -= {"tokenizer.json", "model.safetensors"}  # transformers gives them these names
    assert {"runs", "evaluations", "state", "verdicts.json", "mlflow"} <= names
    for path in sorted(SOURCES.rglob("*.py")):
        if path != own:
            tree, name = ast.parse(path.read_text()), "/".join(path.parts[-3:])
            parts = {part for text in joined(tree) for part in text.split("/")}
            assert not (parts & names) - OTHER_FOLDERS.get(name, set()), path


def test_no_rule_joins_a_path(repository: Path) -> None:
    for path in (repository / "Snakefile", *(repository / "workflow" / "rules").glob("*.smk")):
        code = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        assert not [line for line in code if "ROOT}/" in line or "home}/" in line], path


def test_paths_with_wildcards_find_what_is_there_and_no_hidden_file(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "tiny")
    wanted = [layout.training("a", 6), layout.evaluation("s", "a", 6), layout.timings("decoding")]
    for path in map(Path, [*wanted, layout.evaluation("s", "a", ".7")]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert layout.results() == [Path(path) for path in wanted]
    assert Layout.of_log(layout.log("pretrain", "a", "6")) == layout
