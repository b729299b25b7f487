"""Figure 5 as a table: accuracy of multi-needle retrieval by context length, after extension."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.needles import needles_long


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures needles by length."""
    sections = [needles_long(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
