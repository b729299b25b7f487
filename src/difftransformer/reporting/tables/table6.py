"""Table 6: what each row is, validation loss, AR-Hit and Others, and the verdicts on its claims."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.language_modelling import language_modelling


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table; every section measures language modelling."""
    sections = [language_modelling(artifact, part, results) for part in artifact.sections]
    return assemble(artifact, sections)
