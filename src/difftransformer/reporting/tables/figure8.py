"""The numbers of figure 8: scores by bits, a section for each kind of rounding and score."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.quantised import quantised


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; the measures of a section name what is rounded."""
    return assemble(artifact, [quantised(artifact, part, results) for part in artifact.sections])
