"""Figure 9 as a table: mean accuracy on mathematics by tokens of stage 1."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.mathematics import math_by_tokens


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table."""
    return assemble(
        artifact, [math_by_tokens(artifact, part, results) for part in artifact.sections]
    )
