"""Some rows side by side: in language modelling, along training, in stability, in retrieval."""

from collections.abc import Callable

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Section, TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.language_modelling import language_modelling
from difftransformer.reporting.measures.loss_by_tokens import loss_by_tokens
from difftransformer.reporting.measures.recall import recall
from difftransformer.reporting.measures.stability import spikes

Measure = Callable[[ArtifactSlice, SectionSlice, Results], Section]
_MEASURES: dict[str, Measure] = {
    "language_modelling": language_modelling,
    "loss_by_tokens": loss_by_tokens,
    "recall": recall,
    "spikes": spikes,
}


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table, each section with the measures it names."""
    sections = [_MEASURES[part.measures](artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
