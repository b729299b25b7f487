"""Table 3: attention to the answer and to noise by depth."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.attention import attention


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures attention."""
    return assemble(artifact, [attention(artifact, part, results) for part in artifact.sections])
