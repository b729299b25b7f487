"""The rows of table 6 on retrieval: who binds, how soon, and accuracy by N."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.recall import recall


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures retrieval."""
    return assemble(artifact, [recall(artifact, part, results) for part in artifact.sections])
