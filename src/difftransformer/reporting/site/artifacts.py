"""What the site shows of each artifact: its table, its figure and its verdicts."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from difftransformer.config.resolved_artifacts import (
    EarlierArtifact,
    ReportConfig,
    ResolvedArtifact,
)
from difftransformer.errors import DataError, UserError
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import SUMS
from difftransformer.provenance.result import read_result
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_notes import interpretations_note
from difftransformer.reporting.verdict_job import read_table
from difftransformer.reporting.verdicts import Verdict

logger = logging.getLogger(__name__)

# A figure is drawn on white. On a dark page its ink turns light and each color of a row to its
# lighter twin; site.css has the same pairs.
_DARK = {
    "#ffffff": "#1b1d22", "#1c1d21": "#e6e7ea", "#000000": "#e6e7ea", "#6b6f7a": "#a3a8b4",
    "#d9dbe1": "#3a3d46", "#949494": "#a6a9b0", "#0173b2": "#57b3ea", "#029e73": "#3cc79d",
    "#d55e00": "#f0874a", "#de8f05": "#eeb04c", "#cc78bc": "#dc9bd0", "#ca9161": "#d9ab83",
}  # fmt: skip


class Picture(NamedTuple):
    """A figure: SVG that follows the page into the dark, and its width in points."""

    svg: str
    width: float
    alt: str
    caption: str


class SiteArtifact(NamedTuple):
    """One artifact of the site."""

    id: str
    title: str
    description: str
    command: str
    kept: bool
    table: TableDocument | None
    picture: Picture | None
    verdicts: list[Verdict]


def read_artifacts(
    report: ReportConfig,
    tables: Iterable[Path],
    figures: Iterable[Path],
    verdicts: Iterable[Verdict],
) -> list[SiteArtifact]:
    """Read every artifact of the report, in its order.

    One that is kept from an earlier call and cannot be read any more is left out.

    Raises:
        UserError: A table or a figure that was asked for is missing; names it and the command.
        DataError: One of them is damaged.
    """
    kept = {one.artifact: one for one in report.earlier}
    read = {path.stem: path for path in tables}
    drawn = {path.stem: path for path in figures}
    answers, found = list(verdicts), []
    for name in dict.fromkeys(one.artifact for one in (*report.tables, *report.figures)):
        if name not in kept:
            found.append(_part(name, report, read, drawn, answers))
            continue
        try:
            found.append(_part(name, report, *_lying(kept[name]), answers))
        except UserError as error:
            logger.warning(f"left out: {error}")
    return found


def readable_results(paths: Iterable[str]) -> list[Path]:
    """Result files that can still be read, of those behind what is kept."""
    found = []
    for path in map(Path, paths):
        try:
            read_result(path)
        except DataError as error:
            logger.warning(f"left out: {error}")
        else:
            found.append(path)
    return found


def _lying(kept: EarlierArtifact) -> tuple[dict[str, Path], dict[str, Path]]:
    name = kept.artifact
    tables, figures = (
        {} if file is None else {name: Path(file)} for file in (kept.table, kept.figure)
    )
    return tables, figures


def _part(
    name: str,
    report: ReportConfig,
    read: Mapping[str, Path],
    drawn: Mapping[str, Path],
    verdicts: Iterable[Verdict],
) -> SiteArtifact:
    table = next((one for one in report.tables if one.artifact == name), None)
    figure = next((one for one in report.figures if one.artifact == name), None)
    about = table or figure
    assert about is not None
    for kind, wanted, have in (("table", table, name in read), ("figure", figure, name in drawn)):
        if wanted is not None and not have:
            raise UserError(
                f"the report shows the {kind} '{name}', which was not given: make it with "
                f"`snakemake {name} --config scale={report.scale}`"
            )
    return SiteArtifact(
        id=name,
        title=about.title,
        description=about.description,
        command=report.commands.get(name, f"snakemake {name} --config scale={report.scale}"),
        kept=any(one.artifact == name for one in report.earlier),
        table=read_table(read[name]) if table is not None else None,
        picture=_picture(figure, drawn[name]) if figure is not None else None,
        verdicts=[one for one in verdicts if one.about.artifact == name],
    )


def _picture(figure: ResolvedArtifact, path: Path) -> Picture:
    try:
        verify_file(path, path.with_suffix(SUMS))
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}; build the figure again"
        ) from None
    caption = " ".join([figure.caption, *interpretations_note(figure)])
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', content)
    if width is None:
        raise DataError(f"{path}: has no width; build the figure again")
    return Picture(adaptive(content), float(width[1]), figure.alt, caption)


def adaptive(svg: str) -> str:
    """Let a picture follow the color scheme of the page that it is an image of."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}}}'
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
        if light in svg
    ).replace("}", "!important}")
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    head, tag, rest = svg.partition("<defs>")
    return f"{head}{tag}{style}{rest}"
