"""Decoding with a KV cache: tokens per second, ratios, bytes."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.decoding import decoding


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table, of every section one of speeds and one of ratios; no seed is involved."""
    parts = [decoding(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, [section for part in parts for section in part], seeded=False)
