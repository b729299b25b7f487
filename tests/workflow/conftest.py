"""A finished small workflow in a copy of the repository, to edit and to plan again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from small_workflow import ROWS, Checkout, copy_of


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Checkout:
    """Three rows of table 6 at smoke scale with one seed, really built."""
    folder = tmp_path_factory.mktemp("finished")
    copy_of(repository, folder)
    settings = folder / "config" / "config.yaml"
    content = yaml.safe_load(settings.read_text())
    content |= {"scale": "smoke", "headline": ["table6"]}
    settings.write_text(yaml.safe_dump(content))
    artifacts = folder / "config" / "artifacts.yaml"
    content = yaml.safe_load(artifacts.read_text())
    table = content["artifacts"]["table6"]
    table["sections"][0]["rows"] = [{"run": run} for run in ROWS]
    table["claims"] = ["T6.1", "T6.5"]
    content["artifacts"] = {"table6": table}
    artifacts.write_text(yaml.safe_dump(content))
    (folder / "config" / "papers.yaml").write_text("papers: {}\n")
    claims = folder / "config" / "claims.yaml"
    content = yaml.safe_load(claims.read_text())
    content["claims"] = {name: content["claims"][name] for name in table["claims"]}
    claims.write_text(yaml.safe_dump(content))
    scale = folder / "config" / "scales" / "smoke.yaml"
    text = scale.read_text()
    scale.write_text(text[: text.index("\nstand_ins:")])  # rows of artifacts that are gone
    checkout = Checkout(folder)
    checkout.snakemake("--cores", "2")
    return checkout


@pytest.fixture
def checkout(finished: Checkout) -> Iterator[Checkout]:
    """The finished workflow; its sources and settings are put back afterwards."""
    with finished.kept():
        yield finished
