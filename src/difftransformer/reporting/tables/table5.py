"""Table 5: activation outliers, a section each for attention logits and hidden states."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.outliers import outliers


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; the measures of a section name the kind of activation."""
    return assemble(artifact, [outliers(artifact, part, results) for part in artifact.sections])
