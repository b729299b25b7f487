"""Attention on the first token."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.sinks import sinks


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures sinks."""
    return assemble(artifact, [sinks(artifact, part, results) for part in artifact.sections])
