"""Layer numbers, and the mark of our interpretations, in tables and figures."""

import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults
from pictures import picture

from difftransformer.config.resolved_artifacts import MARK
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Section
from difftransformer.reporting.table_job import make_table


def text(section: Section, row: str, column: str) -> str:
    cell = section.cell(row, column)
    assert cell is not None, (row, column)
    return cell.text


def test_layers_count_from_one_for_readers(fake: FakeResults) -> None:
    made = make_table(resolved_artifact("v2_sinks"), load_results(fake.results, "tiny"))
    headers = {column.id: column.header for column in made.sections[0].columns}
    assert (headers["share_l0"], headers["share_l1"]) == (
        "First-token share, layer 1",
        "First-token share, layer 2",
    )
    (axes,) = picture("v2_sinks", fake).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]


@pytest.mark.parametrize("artifact", ["variants", "v2_context_rms", "table7"])
def test_an_interpretation_is_marked_wherever_it_is_shown(artifact: str, fake: FakeResults) -> None:
    made = make_table(resolved_artifact(artifact), load_results(fake.results, "tiny"))
    interpreted = [row for section in made.sections for row in section.rows if "dint" in row.run]
    others = [row for section in made.sections for row in section.rows if "diff" in row.run]
    assert interpreted and all(MARK in row.label for row in interpreted)
    assert others and not any(MARK in row.label for row in others)
    notes = [note for note in made.notes if "our interpretation" in note]
    assert len(notes) == 1 and "DINT" in notes[0] and "causal form" in notes[0]
