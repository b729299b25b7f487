"""Tags and links of a run: the tables and figures that show it, and their report pages."""

import re
from collections.abc import Iterable

from mlflow.entities import Run

NOTE = "mlflow.note.content"
REPORTS = "http://127.0.0.1:5001"
"""Where `difftransformer ui` serves the reports, unless it is given another port."""
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+(?=/)")
_IN_THE_REPORT = "\n\nIn the report: "

Tags = dict[str, dict[str, str]]
"""Tags to set, by run."""


def shown_in(runs: Iterable[Run]) -> Tags:
    """Return the missing tags of runs, which name the tables and figures that show them.

    An artifact shows its upstream runs, and theirs in turn. Each of them gets a tag such as
    `shown_in.table6`, and links to the report pages in its description.
    """
    found = {run.data.tags.get("job_id", ""): run for run in runs}
    pages: dict[str, set[tuple[str, str]]] = {}
    missing: Tags = {}
    for artifact in found.values():
        tags = artifact.data.tags
        if not tags.get("rule", "").startswith("build_"):
            continue
        name, behind, seen = tags["run"], [artifact], set[str]()
        while behind:
            run = behind.pop()
            names = set(run.data.tags.get("upstream", "").split()) - seen
            seen |= names
            behind += [found[name] for name in names if name in found]
            pages.setdefault(run.data.tags["job_id"], set()).add((name, tags.get("scale", "")))
            if run is not artifact and f"shown_in.{name}" not in run.data.tags:
                missing.setdefault(run.info.run_id, {})[f"shown_in.{name}"] = "yes"
    for job, known in pages.items():
        run = found[job]
        note = run.data.tags.get(NOTE, "")
        if linked(_linked(note, known), REPORTS) != linked(note, REPORTS):
            missing.setdefault(run.info.run_id, {})[NOTE] = _linked(note, known)
    return missing


def linked(note: str, reports: str) -> str:
    """Return a description whose links lead to the reports at an address."""
    return _ADDRESS.sub(reports, note)


def _linked(note: str, pages: Iterable[tuple[str, str]]) -> str:
    links = [f"[{name}]({REPORTS}/{scale}/{name}.html)" for name, scale in sorted(pages)]
    return note.partition(_IN_THE_REPORT)[0] + _IN_THE_REPORT + ", ".join(links)
