"""The table of variants: DIFF V2, its rivals and the Transformer, at equal sizes or FLOPs."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.variants import variants


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table, a section for each way of matching."""
    return assemble(artifact, [variants(artifact, part, results) for part in artifact.sections])
