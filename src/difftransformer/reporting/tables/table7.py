"""Table 7: throughput, over shapes and by backend."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.throughput import throughput


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; no seed is involved."""
    parts = [throughput(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, [section for part in parts for section in part], seeded=False)
