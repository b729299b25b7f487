"""Figures 3a and 3b as a table: points, fitted curves, and the share needed for equal loss."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.scaling import scaling


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section of the artifact becomes points and curves."""
    parts = [scaling(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, [section for part in parts for section in part])
