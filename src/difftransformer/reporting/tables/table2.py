"""Table 2: accuracy of multi-needle retrieval by setting."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.needles import needles


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures needles."""
    return assemble(artifact, [needles(artifact, part, results) for part in artifact.sections])
