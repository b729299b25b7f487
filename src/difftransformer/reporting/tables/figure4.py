"""Figure 4 in numbers: cumulative loss by position, and its paired differences."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.nll_by_position import nll_by_position, nll_differences


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section has one of differences behind it where rows are compared."""
    sections = []
    for part in artifact.sections:
        measured = nll_by_position(artifact, part, results)
        sections.append(measured)
        if any(row.against for row in part.rows):
            sections.append(nll_differences(part, measured))
    return assemble(artifact, sections)
