"""The pages of the site, and a single page with all of them."""

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

FRONT, RUNS, ATTENTION, SINGLE_PAGE = "index", "runs", "attention", "single-page"
_ASSETS = "site/assets"
_STYLES = ("uPlot.min.css", "site.css")
_PAGE_SCRIPTS = {
    "uPlot.iife.min.js": RUNS,
    "runs.js": RUNS,
    "plot.min.js": ATTENTION,
    "attention.js": ATTENTION,
}
"""Scripts that only one page needs, with the data that it reads."""
_SCRIPTS = ("site.js", "table.js", "panel.js", *_PAGE_SCRIPTS)
_LICENSES = ("uPlot.LICENSE", "plot.LICENSE")


class PageBody(NamedTuple):
    """Content of a page between its header and footer; the single page has several."""

    name: str
    template: str
    artifact: SiteArtifact | None = None


@dataclass(frozen=True)
class Site:
    """Content of all pages of a report."""

    report: ReportConfig
    artifacts: Sequence[SiteArtifact]
    document: VerdictsDocument
    provenance: ProvenanceSummary
    results: Results
    maps: Sequence[PromptMaps] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Verdicts on the report's artifacts: primary, secondary, then estimates."""
        claims = {verdict.claim for a in self.artifacts for verdict in a.verdicts}
        verdicts = (verdict for verdict in self.document.verdicts if verdict.claim in claims)
        order = ("primary", "secondary", "estimate")
        return sorted(verdicts, key=lambda verdict: order.index(verdict.about.endpoint))

    @cached_property
    def key_figure(self) -> SiteArtifact | None:
        """Figure with the most primary claims and, among those, the most decided claims."""

        def rank(artifact: SiteArtifact) -> tuple[int, int]:
            primary = sum(v.about.endpoint == "primary" for v in artifact.verdicts)
            return primary, sum(v.verdict in DECIDED for v in artifact.verdicts)

        return max((a for a in self.artifacts if a.picture), key=rank, default=None)

    @cached_property
    def data(self) -> dict[str, str]:
        """Data of the pages as scripts, by name."""
        contents: dict[str, object] = {
            "jobs": data.jobs(self.provenance),
            "settings": data.settings(self.results.trainings.values()),
            "runs": data.runs(self.report, self.results),
            "site": {"config_option": self.report.config_option},
        }
        if self.maps:
            contents["attention"] = data.attention(self.maps, self.results.trainings.values())
        contents |= {
            f"table:{artifact.id}": data.cells(artifact.table)
            for artifact in self.artifacts
            if artifact.table is not None
        }
        return {name: data.script(name, content) for name, content in contents.items()}

    def bodies(self) -> Iterator[PageBody]:
        """Yield the content of every page of the report, in order."""
        yield PageBody(FRONT, "front.html.j2")
        for artifact in self.artifacts:
            yield PageBody(artifact.id, "artifact.html.j2", artifact)
        if self.results.trainings:
            yield PageBody(RUNS, "runs.html.j2")
        if self.maps:
            yield PageBody(ATTENTION, "attention.html.j2")

    def needs(self, body: PageBody) -> list[str]:
        """Return the names of the data scripts that a page loads."""
        if body.artifact is not None and body.artifact.table is not None:
            return ["site", "jobs", "settings", f"table:{body.artifact.id}"]
        by_page = {RUNS: ["settings", "runs"], ATTENTION: ["attention"]}
        return by_page.get(body.name, [])


def write_site(site: Site, output: Path) -> None:
    """Write all pages of a report and their assets, the first page last, then the checksums.

    The checksums are next to the folder, which is complete once they exist, also in object storage.
    Files of an earlier report that are not part of this one are removed.
    """
    folder, bodies = output.parent, list(site.bodies())
    texts = {f"assets/{name}": _asset(name) for name in _asset_names()}
    texts |= {f"data/{_file(name)}": text for name, text in site.data.items()}
    texts |= {
        f"figures/{artifact.id}.svg": artifact.picture.svg
        for artifact in site.artifacts
        if artifact.picture is not None
    }
    texts[f"{SINGLE_PAGE}.html"] = _page(site, bodies, single=True)
    texts |= {f"{body.name}.html": _page(site, [body]) for body in reversed(bodies)}
    for pattern in ("*.html", "assets/*", "data/*.js", "figures/*.svg"):
        for path in folder.glob(pattern):
            if path.relative_to(folder).as_posix() not in texts:
                path.unlink()
    for name, text in texts.items():
        write_text(folder / name, text)
    write_checked(folder.with_name(folder.name + SUMS), {}, map(folder.joinpath, texts))


def render_self_contained(template: str, **values: Any) -> str:
    """Return a page rendered from a template, with the scripts of tables included."""
    style, script = _asset("site.css"), _asset("site.js") + _asset("table.js")
    return environment(_ASSETS).get_template(template).render(**values, style=style, script=script)


def _page(site: Site, bodies: Sequence[PageBody], *, single: bool = False) -> str:
    needed = dict.fromkeys(name for body in bodies for name in site.needs(body))
    pictures = {a.id: a.picture for a in site.artifacts if a.picture is not None}
    scripts = [s for s in _SCRIPTS if s not in _PAGE_SCRIPTS or _PAGE_SCRIPTS[s] in needed]

    def href(page: str, anchor: str = "") -> str:
        if single:
            return f"#{anchor or page}"
        return f"{page}.html" + (f"#{anchor}" if anchor else "")

    def source(name: str) -> str:
        if not single:
            return f"figures/{name}.svg"
        encoded = base64.b64encode(pictures[name].svg.encode()).decode("ascii")
        return f"data:image/svg+xml;base64,{encoded}"

    def row_colors(section: Section) -> dict[str, int]:
        """Return the style index of each row, as in a figure of these rows."""
        runs = site.report.runs
        return style_indices({r.run: runs[r.run].color for r in section.rows if r.run in runs})

    values: dict[str, Any] = {
        "site": site,
        "report": site.report,
        "bodies": bodies,
        "single": single,
        "href": href,
        "source": source,
        "styles": [(name, _asset(name)) for name in _STYLES],
        "scripts": [(f"assets/{name}", _asset(name)) for name in scripts],
        "datasets": [(f"data/{_file(name)}", site.data[name]) for name in needed],
        "row_colors": row_colors,
        "sparkline": sparkline,
        "curve_text": curve_tokens(list(site.results.trainings.values())),
    }
    return environment(_ASSETS).get_template("page.html.j2").render(**values)


def _file(name: str) -> str:
    return f"{name.replace(':', '-')}.js"


def _asset_names() -> list[str]:
    return sorted([*_STYLES, *_SCRIPTS, *_LICENSES])


def _asset(name: str) -> str:
    return (files("difftransformer.reporting") / _ASSETS / name).read_text(encoding="utf-8")
