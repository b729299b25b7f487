"""Figure 8 as a table: what its sections say of score and rounding."""

from pathlib import Path

from fake_results import FakeResults
from fake_slices import artifact_slice

from difftransformer.reporting.table_job import build_table


def test_sections_say_what_is_scored_and_what_shares_a_scale(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(artifact_slice("figure8"), fake.results, tmp_path / "figure8")
    text = (tmp_path / "figure8.md").read_text()
    for said in (
        "Score: retrieval accuracy, N = 4; guessing gives 0.25. One scale for the logits of one "
        "sequence and softmax map.",
        "Score: validation loss, nats. One scale for one position of a head.",
        "The paper's score, HellaSwag, is beyond models of this scale: its curves are drawn.",
    ):
        assert said in text, said
