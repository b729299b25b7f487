"""Status at a scale of each table and figure in the papers."""

from collections.abc import Collection

from difftransformer.config.papers import ItemStatus, PaperItem, PaperStatus, State
from difftransformer.planning.artifacts import Artifacts
from difftransformer.provenance.masking import without_folders

_OFFLINE = "The offline judge decides; judge=endpoint asks a language model, as the paper does."


def paper_contents(artifacts: Artifacts, reported: Collection[str]) -> list[PaperStatus]:
    """Return the status at a scale of each table and figure in the papers, in the papers' order.

    Args:
        artifacts: Artifacts of the scale.
        reported: Names of the artifacts that the report shows.
    """

    def status(item: PaperItem) -> ItemStatus:
        states, note = _become(item, artifacts, reported)
        fields = item.model_dump(include={"item", "shows", "artifact"})
        return ItemStatus(**fields, states=states, note=note)

    papers = artifacts.jobs.resolver.papers.papers.values()
    return [
        PaperStatus(
            title=paper.title, source=paper.source, items=[status(item) for item in paper.items]
        )
        for paper in papers
    ]


def _become(
    item: PaperItem, artifacts: Artifacts, reported: Collection[str]
) -> tuple[list[State], str]:
    """Return the states of a paper's table or figure, and a note on what is missing."""
    resolver, name = artifacts.jobs.resolver, item.artifact
    scale = resolver.project.scale
    if name is None:
        state: State = "nothing to measure" if item.missing is None else "not built yet"
        return [state], f"{item.reason or item.missing}."
    if name not in artifacts.available:
        return ["needs scale"], f"{lacking(artifacts, name)}."
    if name not in reported:
        command = f"snakemake {name} --config scale={scale}"
        return ["not in this report"], f"Build it with {command}."
    proxies = resolver.scale.proxies.get(name, {})
    left_out = [resolver.runs[run].label for run, other in proxies.items() if other is None]
    if left_out:
        return ["built here", "needs scale"], f"Without {', '.join(left_out)}."
    if artifacts.answer_folders(name) and "endpoint" not in resolver.project.judge:
        return ["built here", "needs a judge"], _OFFLINE
    return ["built here"], ""


def lacking(artifacts: Artifacts, name: str) -> str:
    """Return the reason why an artifact in the configuration cannot be built at this scale."""
    resolver = artifacts.jobs.resolver
    declared = resolver.artifacts.get(name)
    if declared is not None and (why := artifacts.unavailable_reason(declared)) is not None:
        return f"Not for the model of the setting `pretrained`: {without_folders(why)}"
    return f"Scale {resolver.project.scale} has no setting for it"
