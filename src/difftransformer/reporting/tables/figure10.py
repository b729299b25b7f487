"""Figure 10 as a table: accuracy by set after stage 2, and lengths of output."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.mathematics import mathematics


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table."""
    return assemble(artifact, [mathematics(artifact, part, results) for part in artifact.sections])
