"""Training stability by learning rate: spikes, divergence and the loss at the end."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.stability import stability


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section of the artifact becomes one for each kind of instability."""
    parts = [stability(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, [section for part in parts for section in part])
