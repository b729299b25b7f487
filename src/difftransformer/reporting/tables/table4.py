"""Table 4: share of outputs that are free of contextual hallucination."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.hallucination import hallucination


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures hallucination."""
    sections = [
        made for part in artifact.sections for made in hallucination(artifact, part, results)
    ]
    return assemble(artifact, sections)
