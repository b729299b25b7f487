"""The pages of the site, and one page that holds all of them."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from difftransformer.config.registry import DECIDED
from difftransformer.config.resolved_artifacts import ReportConfig
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.layout import SUMS
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import style_indices
from difftransformer.reporting.formats.html import environment
from difftransformer.reporting.provenance_summary import ProvenanceSummary
from difftransformer.reporting.section_context import PromptMaps
from difftransformer.reporting.site import data
from difftransformer.reporting.site.artifacts import SiteArtifact
from difftransformer.reporting.site.sparklines import sparkline
from difftransformer.reporting.table_notes import curve_tokens
from difftransformer.reporting.verdict_job import VerdictsDocument
from difftransformer.reporting.verdicts import Verdict

FRONT, RUNS, ATTENTION, SINGLE_PAGE = "index", "runs", "attention", "whole"
_ASSETS = "site/assets"
_STYLES = ("uPlot.min.css", "site.css")
_OF = {
    "uPlot.iife.min.js": RUNS,
    "runs.js": RUNS,
    "plot.min.js": ATTENTION,
    "attention.js": ATTENTION,
}
"""Scripts of one kind of page, by the data that it reads."""
_SCRIPTS = ("site.js", "table.js", "panel.js", *_OF)
_LICENSES = ("uPlot.LICENSE", "plot.LICENSE")


class PageBody(NamedTuple):
    """What stands between head and foot of a page; several of them on the one that holds all."""

    name: str
    template: str
    part: SiteArtifact | None = None


@dataclass(frozen=True)
class Site:
    """Everything that the pages are written from."""

    report: ReportConfig
    parts: Sequence[SiteArtifact]
    answers: VerdictsDocument
    origins: ProvenanceSummary
    found: Results
    maps: Sequence[PromptMaps] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Verdicts on the artifacts that are shown: primary, secondary, then estimates."""
        shown = {verdict.claim for part in self.parts for verdict in part.verdicts}
        listed = (verdict for verdict in self.answers.verdicts if verdict.claim in shown)
        order = ("primary", "secondary", "estimate")
        return sorted(listed, key=lambda verdict: order.index(verdict.about.endpoint))

    @cached_property
    def foremost(self) -> SiteArtifact | None:
        """The part with the key figure: the one with the most primary, then decided, claims."""

        def weight(part: SiteArtifact) -> tuple[int, int]:
            decided = sum(one.verdict in DECIDED for one in part.verdicts)
            return sum(one.about.endpoint == "primary" for one in part.verdicts), decided

        return max((one for one in self.parts if one.picture), key=weight, default=None)

    @cached_property
    def data(self) -> dict[str, str]:
        """Scripts of data by their names."""
        found: dict[str, object] = {
            "jobs": data.jobs(self.origins),
            "settings": data.settings(self.found.trainings.values()),
            "runs": data.runs(self.report, self.found),
            "site": {"config_option": self.report.config_option},
        }
        if self.maps:
            found["attention"] = data.attention(self.maps, self.found.trainings.values())
        found |= {
            f"table:{part.id}": data.cells(part.table)
            for part in self.parts
            if part.table is not None
        }
        return {name: data.script(name, content) for name, content in found.items()}

    def bodies(self) -> Iterator[PageBody]:
        """What there is to show, in order."""
        yield PageBody(FRONT, "front.html.j2")
        for part in self.parts:
            yield PageBody(part.id, "artifact.html.j2", part)
        if self.found.trainings:
            yield PageBody(RUNS, "runs.html.j2")
        if self.maps:
            yield PageBody(ATTENTION, "attention.html.j2")

    def needs(self, body: PageBody) -> list[str]:
        """Names of the data that a page reads."""
        if body.part is not None and body.part.table is not None:
            return ["site", "jobs", "settings", f"table:{body.part.id}"]
        own = {RUNS: ["settings", "runs"], ATTENTION: ["attention"]}
        return own.get(body.name, [])


def write_site(site: Site, output: Path) -> None:
    """Write all pages with what they need beside them, the first page last, then their digests.

    Those lie beside the folder: it is whole when they are there, in object storage, too.
    What an earlier report left there of artifacts that are gone is taken away.
    """
    folder, bodies = output.parent, list(site.bodies())
    texts = {f"assets/{name}": _asset(name) for name in _asset_names()}
    texts |= {f"data/{_file(name)}": text for name, text in site.data.items()}
    texts |= {
        f"figures/{part.id}.svg": part.picture.svg
        for part in site.parts
        if part.picture is not None
    }
    texts[f"{SINGLE_PAGE}.html"] = _page(site, bodies, whole=True)
    texts |= {f"{body.name}.html": _page(site, [body]) for body in reversed(bodies)}
    for pattern in ("*.html", "assets/*", "data/*.js", "figures/*.svg"):
        for path in folder.glob(pattern):
            if path.relative_to(folder).as_posix() not in texts:
                path.unlink()
    for name, text in texts.items():
        write_text(folder / name, text)
    write_checked(folder.with_name(folder.name + SUMS), {}, map(folder.joinpath, texts))


def render_alone(template: str, **values: Any) -> str:
    """Fill the template of a page that needs no other file, with the scripts of tables."""
    style, script = _asset("site.css"), _asset("site.js") + _asset("table.js")
    return environment(_ASSETS).get_template(template).render(**values, style=style, script=script)


def _page(site: Site, bodies: Sequence[PageBody], *, whole: bool = False) -> str:
    needed = dict.fromkeys(name for body in bodies for name in site.needs(body))
    pictures = {part.id: part.picture for part in site.parts if part.picture is not None}
    scripts = [one for one in _SCRIPTS if one not in _OF or _OF[one] in needed]

    def href(page: str, anchor: str = "") -> str:
        if whole:
            return f"#{anchor or page}"
        return f"{page}.html" + (f"#{anchor}" if anchor else "")

    def source(name: str) -> str:
        if not whole:
            return f"figures/{name}.svg"
        encoded = base64.b64encode(pictures[name].svg.encode()).decode("ascii")
        return f"data:image/svg+xml;base64,{encoded}"

    def row_looks(section: Section) -> dict[str, int]:
        """Numbers of the looks that a figure of these rows gives them."""
        known = site.report.runs
        return style_indices({r.run: known[r.run].color for r in section.rows if r.run in known})

    values: dict[str, Any] = {
        "site": site,
        "report": site.report,
        "bodies": bodies,
        "whole": whole,
        "href": href,
        "source": source,
        "styles": [(name, _asset(name)) for name in _STYLES],
        "scripts": [(f"assets/{name}", _asset(name)) for name in scripts],
        "datasets": [(f"data/{_file(name)}", site.data[name]) for name in needed],
        "row_looks": row_looks,
        "sparkline": sparkline,
        "curve_text": curve_tokens(list(site.found.trainings.values())),
    }
    return environment(_ASSETS).get_template("page.html.j2").render(**values)


def _file(name: str) -> str:
    return f"{name.replace(':', '-')}.js"


def _asset_names() -> list[str]:
    return sorted([*_STYLES, *_SCRIPTS, *_LICENSES])


def _asset(name: str) -> str:
    return (files("difftransformer.reporting") / _ASSETS / name).read_text(encoding="utf-8")
