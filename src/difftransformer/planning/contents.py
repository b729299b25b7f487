"""What has become of every table and figure of the papers, for the report's table of contents."""

from collections.abc import Collection

from difftransformer.config.papers import ItemStatus, PaperItem, PaperStatus, State
from difftransformer.config.resolve import Catalogue

_OFFLINE = "The offline judge decides; judge=endpoint asks a language model, as the paper does."


def paper_contents(
    catalogue: Catalogue, buildable: Collection[str], reported: Collection[str]
) -> list[PaperStatus]:
    """Return one line for each table and figure that the papers print, in their order.

    Args:
        catalogue: The configuration at one scale.
        buildable: Artifacts that the scale can build.
        reported: Artifacts that the report shows.
    """

    def status(item: PaperItem) -> ItemStatus:
        scale = catalogue.project.scale
        if item.artifact is None:
            return _line(item, ["nothing to measure"], f"{item.reason}.")
        if item.artifact not in buildable:
            return _line(item, ["needs scale"], f"Scale {scale} has no setting for it.")
        if item.artifact not in reported:
            command = f"snakemake {item.artifact} --config scale={scale}"
            return _line(item, ["not in this report"], f"Build it with {command}.")
        missing = _left_out(catalogue, item.artifact)
        if missing:
            return _line(item, ["built here", "needs scale"], f"Without {', '.join(missing)}.")
        if _judged(catalogue, item.artifact) and "endpoint" not in catalogue.project.judge:
            return _line(item, ["built here", "needs a judge"], _OFFLINE)
        return _line(item, ["built here"])

    return [
        PaperStatus(
            title=paper.title, source=paper.source, items=[status(item) for item in paper.items]
        )
        for paper in catalogue.papers.papers.values()
    ]


def _left_out(catalogue: Catalogue, artifact: str) -> list[str]:
    """Labels of the rows that the scale leaves out."""
    stand_ins = catalogue.scale.stand_ins.get(artifact, {})
    return [catalogue.runs[run].label for run, other in stand_ins.items() if other is None]


def _judged(catalogue: Catalogue, artifact: str) -> bool:
    """Whether a judge decides what the artifact shows."""
    suites = {suite for part in catalogue.artifacts[artifact].sections for suite in part.suites}
    return any(catalogue.suite(suite).kind == "hallucination" for suite in suites)


def _line(item: PaperItem, states: list[State], words: str = "") -> ItemStatus:
    return ItemStatus(
        item=item.item, shows=item.shows, artifact=item.artifact, states=states, words=words
    )
