"""The artifacts of the site: table, figure and verdicts of each."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from difftransformer.config.resolved_artifacts import ReportConfig, ResolvedArtifact
from difftransformer.errors import DataError, UserError
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import SUMS
from difftransformer.provenance.result import read_result
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_notes import deviations_note
from difftransformer.reporting.verdict_job import read_table
from difftransformer.reporting.verdicts import Verdict

logger = logging.getLogger(__name__)

# Colors of figures, which are drawn on white, and their replacements on a dark page. site.css has
# the same pairs.
_DARK = {
    "#ffffff": "#1b1d22", "#1c1d21": "#e6e7ea", "#000000": "#e6e7ea", "#6b6f7a": "#a3a8b4",
    "#d9dbe1": "#3a3d46", "#949494": "#a6a9b0", "#0173b2": "#57b3ea", "#029e73": "#3cc79d",
    "#d55e00": "#f0874a", "#de8f05": "#eeb04c", "#cc78bc": "#dc9bd0", "#ca9161": "#d9ab83",
}  # fmt: skip


class Picture(NamedTuple):
    """A figure as SVG text with colors for light and dark pages, and its width in points."""

    svg: str
    width: float
    alt: str
    caption: str


class SiteArtifact(NamedTuple):
    """A table or figure of the report with the verdicts on its claims."""

    id: str
    title: str
    description: str
    command: str
    from_earlier_build: bool
    table: TableDocument | None
    picture: Picture | None
    verdicts: list[Verdict]


def read_artifacts(
    report: ReportConfig,
    tables: Iterable[Path],
    figures: Iterable[Path],
    verdicts: Iterable[Verdict],
) -> list[SiteArtifact]:
    """Return every table and figure of the report, in its order, read from files.

    An artifact of an earlier build that cannot be read any more is skipped with a warning.

    Raises:
        UserError: A requested table or figure is missing; the message names it and the command.
        DataError: A requested table or figure is damaged.
    """
    earlier = {artifact.artifact: artifact for artifact in report.earlier}
    table_paths = {path.stem: path for path in tables}
    figure_paths = {path.stem: path for path in figures}
    all_verdicts, artifacts = list(verdicts), []
    for name in dict.fromkeys(a.artifact for a in (*report.tables, *report.figures)):
        if name not in earlier:
            artifacts.append(_read(name, report, table_paths, figure_paths, all_verdicts))
            continue
        table, figure = (
            {} if file is None else {name: Path(file)}
            for file in (earlier[name].table, earlier[name].figure)
        )
        try:
            artifacts.append(_read(name, report, table, figure, all_verdicts))
        except UserError as error:
            logger.warning(f"skipped: {error}")
    return artifacts


def readable_results(paths: Iterable[str]) -> list[Path]:
    """Return the paths of the result files that can be read; skip others with a warning."""
    readable = []
    for path in map(Path, paths):
        try:
            read_result(path)
        except DataError as error:
            logger.warning(f"skipped: {error}")
        else:
            readable.append(path)
    return readable


def _read(
    name: str,
    report: ReportConfig,
    tables: Mapping[str, Path],
    figures: Mapping[str, Path],
    verdicts: Iterable[Verdict],
) -> SiteArtifact:
    table = next((a for a in report.tables if a.artifact == name), None)
    figure = next((a for a in report.figures if a.artifact == name), None)
    config = table or figure
    assert config is not None
    command = f"snakemake {name} --config scale={report.scale}"
    for kind, wanted, paths in (("table", table, tables), ("figure", figure, figures)):
        if wanted is not None and name not in paths:
            raise UserError(
                f"the report shows the {kind} '{name}', which was not passed; build it with "
                f"`{command}`"
            )
    return SiteArtifact(
        id=name,
        title=config.title,
        description=config.description,
        command=report.commands.get(name, command),
        from_earlier_build=any(a.artifact == name for a in report.earlier),
        table=read_table(tables[name]) if table is not None else None,
        picture=_picture(figure, figures[name]) if figure is not None else None,
        verdicts=[verdict for verdict in verdicts if verdict.about.artifact == name],
    )


def _picture(figure: ResolvedArtifact, path: Path) -> Picture:
    try:
        verify_file(path, path.with_suffix(SUMS))
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; rebuild the figure") from None
    caption = " ".join([figure.caption, *deviations_note(figure)])
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', content)
    if width is None:
        raise DataError(f"{path}: has no width; rebuild the figure")
    return Picture(adaptive(content), float(width[1]), figure.alt, caption)


def adaptive(svg: str) -> str:
    """Return an SVG changed so that its colors follow the color scheme of the page around it."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}}}'
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
        if light in svg
    ).replace("}", "!important}")
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return svg.replace("<defs>", f"<defs>{style}", 1)
