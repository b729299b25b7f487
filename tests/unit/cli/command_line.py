"""Calls of the command line, and a built table for it to find."""

from pathlib import Path

from typer.testing import CliRunner, Result

from difftransformer.cli import app
from difftransformer.provenance.checksums import write_checked
from difftransformer.reporting.document import TableDocument

RUNNER = CliRunner()


def call(*words: str | Path) -> Result:
    return RUNNER.invoke(app, [str(word) for word in words])


def table_with(checkout: Path, name: str, seeds: list[int]) -> None:
    """A built table with these seeds, and nothing in it."""
    path = checkout / f"results/tiny/tables/{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"artifact": name, "title": "T", "caption": "", "scale": "tiny", "seeds": seeds}
    table = TableDocument.model_validate(about | {"sections": []})
    page = path.with_suffix(".html")
    page.touch()
    write_checked(path, table.model_dump(mode="json"), [page])
