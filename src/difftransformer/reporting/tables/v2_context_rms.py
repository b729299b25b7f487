"""The context RMS by position, beside its bounds."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.context_rms import context_rms


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section of the artifact becomes one for each reading."""
    parts = [context_rms(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, [section for part in parts for section in part])
