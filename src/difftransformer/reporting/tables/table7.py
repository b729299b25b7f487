"""Table 7: throughput, over shapes and by backend."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.throughput import throughput


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; no seed is involved, so no note of seeds."""
    parts = [throughput(artifact, part, results) for part in artifact.sections]
    table = assemble(artifact, [section for sections in parts for section in sections])
    return table.model_copy(update={"notes": []})
