"""Decoding with a KV cache: tokens per second, ratios, bytes."""

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import reference
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.frame import assemble
from difftransformer.reporting.measures.decoding import DecodingTimings, held, ratios, speeds


def build(artifact: ArtifactSlice, results: Results) -> TableDocument:
    """Make the table: speeds and bytes of the first section's rows, and the ratios of each section.

    No seed is involved.
    """
    timings = DecodingTimings(results)
    first, *further = artifact.sections
    sections = [
        speeds(first, timings),
        ratios(first, timings, "Ratio to the Transformer"),
        *(ratios(part, timings, part.title, reference(part, first)) for part in further),
        held(first, timings),
    ]
    return assemble(artifact, sections, seeded=False)
