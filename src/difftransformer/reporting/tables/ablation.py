"""One ablation: some rows of table 6 in language modelling and in retrieval, side by side."""

from collections.abc import Callable

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Section, TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.language_modelling import language_modelling
from difftransformer.reporting.measures.recall import recall

Measure = Callable[[ArtifactSlice, SectionSlice, Results], Section]
_MEASURES: dict[str, Measure] = {"language_modelling": language_modelling, "recall": recall}


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table, each section with the measures it names."""
    sections = [_MEASURES[part.measures](artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
