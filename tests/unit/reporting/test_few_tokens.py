import json

import pytest
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults, rewrite

from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import make_table


@pytest.mark.parametrize(("tokens", "marked"), [(16, True), (999, True), (1000, False)])
def test_a_slice_of_few_tokens_is_marked(small: FakeResults, tokens: int, marked: bool) -> None:
    artifact = resolved_artifact("table6", seeds=(0,))
    for row in {row.run for part in artifact.sections for row in part.rows}:
        small.language_model(row, 0)
    path = next(path for path in small.results if path.parts[-3] == "validation_slices")
    content = json.loads(path.read_text())
    content["metrics"]["ar_hit_tokens"] = tokens
    rewrite(path, json.dumps(content))
    table = make_table(artifact, load_results(small.results, SCALE))
    headers = [column.header for section in table.sections for column in section.columns]
    notes = [note for section in table.sections for note in section.notes]
    assert ("AR-Hit ↓ †" in headers) == marked
    assert any(note.startswith(f"†: {tokens} tokens") for note in notes) == marked
    assert "Valid ↓" in headers
