"""Tags and links of a run: the tables and figures that show it, and their report pages."""

from collections.abc import Iterable

from mlflow.entities import Run

NOTE = "mlflow.note.content"
REPORTS = "reports"
"""Path of the reports below the MLflow address of `difftransformer ui`."""
_IN_THE_REPORT = "\n\nIn the report: "

Tags = dict[str, dict[str, str]]
"""Tags to set, by run."""


def artifact_tags(runs: Iterable[Run], served: bool) -> Tags:
    """Return the tags that runs still lack, which name the tables and figures that show them.

    An artifact shows its upstream runs and their upstream runs. Each such run gets a tag such as
    `shown_in.table6`, and its description names the report pages.

    Args:
        runs: All runs of a results folder.
        served: Whether `difftransformer ui` serves this store, so that the names can be links.
    """
    by_job = {run.data.tags.get("job_id", ""): run for run in runs}
    pages: dict[str, set[tuple[str, str]]] = {}
    missing: Tags = {}
    for artifact in by_job.values():
        tags = artifact.data.tags
        if tags.get("rule") not in ("table", "figure"):
            continue
        name, queue, visited = tags["run"], [artifact], set[str]()
        while queue:
            run = queue.pop()
            names = set(run.data.tags.get("upstream", "").split()) - visited
            visited |= names
            queue += [by_job[name] for name in names if name in by_job]
            pages.setdefault(run.data.tags["job_id"], set()).add((name, tags.get("scale", "")))
            if run is not artifact and f"shown_in.{name}" not in run.data.tags:
                missing.setdefault(run.info.run_id, {})[f"shown_in.{name}"] = "yes"
    for job, artifacts in pages.items():
        run = by_job[job]
        note = run.data.tags.get(NOTE, "")
        if (description := _with_links(note, artifacts, served)) != note:
            missing.setdefault(run.info.run_id, {})[NOTE] = description
    return missing


def _with_links(note: str, pages: Iterable[tuple[str, str]], served: bool) -> str:
    links = [
        f"[{name}]({REPORTS}/{scale}/{name}.html)" if served else f"{name} at scale {scale}"
        for name, scale in sorted(pages)
    ]
    return note.partition(_IN_THE_REPORT)[0] + _IN_THE_REPORT + ", ".join(links)
