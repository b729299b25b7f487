"""Figures 6, 7 and 11 as tables: many-shot accuracy, and its spread over orders."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.many_shot import many_shot, many_shot_orders

_MEASURES = {"many_shot": many_shot, "many_shot_orders": many_shot_orders}


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table, each section with the measures it names."""
    sections = [_MEASURES[part.measures](artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
