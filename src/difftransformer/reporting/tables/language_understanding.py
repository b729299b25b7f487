"""Tables 1 and 8: accuracy by task, a section for each number of solved examples."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.language_understanding import language_understanding


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures language understanding."""
    sections = [language_understanding(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
