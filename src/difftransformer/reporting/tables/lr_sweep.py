"""The learning-rate sweep: the final metric by architecture and rate, the best and the one used."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.learning_rate import learning_rate


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table, one section a task."""
    sections = [learning_rate(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
