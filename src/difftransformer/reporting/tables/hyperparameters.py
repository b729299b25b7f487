"""Tables 9 and 10: what the runs are made with."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.hyperparameters import hyperparameters


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; it needs no results."""
    return assemble(artifact, [hyperparameters(artifact, part) for part in artifact.sections])
