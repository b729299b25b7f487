"""Style of all figures, and files that have the same bytes whenever the data are the same."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from difftransformer.provenance.atomic import replacing

if TYPE_CHECKING:
    from matplotlib import axes, figure, lines

    Axes = axes.Axes
    Figure = figure.Figure
    SubFigure = figure.SubFigure
    Line2D = lines.Line2D
else:  # names for annotations of reports, which import no drawing library to make a table
    Axes = Figure = SubFigure = Line2D = Any

INK, SOFT, FAINT = "#1c1d21", "#6b6f7a", "#d9dbe1"
Dash = tuple[float, ...]
"""Dash pattern in seaborn's form: lengths of strokes and gaps; empty for a solid line."""
_DASHES: tuple[Dash, ...] = ((), (5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5))
_MARKERS = ("o", "s", "^", "D", "v", "<", ">")
_PNG_DPI = 160


class RowStyle(NamedTuple):
    """Color, dash and marker of a row, the same in every panel of a figure."""

    color: str
    dash: Dash
    marker: str


def style_indices(rows: Mapping[str, int | None]) -> dict[str, int]:
    """Return a unique style index for each row, by run.

    A row without an index, or with the index of an earlier row, gets the smallest free index.
    """
    owners = {number: row for row, number in reversed(list(rows.items())) if number is not None}
    unused = (number for number in count() if number not in owners)
    return {
        row: number if number is not None and owners[number] == row else next(unused)
        for row, number in rows.items()
    }


def row_styles(rows: Mapping[str, int | None]) -> dict[str, RowStyle]:
    """Return the style of each row, by run, from a palette for color-blind readers."""
    import seaborn

    # Yellow and sky blue are too pale for lines on white; gray goes to the first, the baseline.
    order = (7, 0, 2, 3, 1, 4, 5)
    palette = [seaborn.color_palette("colorblind").as_hex()[index] for index in order]

    def style(number: int) -> RowStyle:
        cycle, index = divmod(number, len(palette))
        return RowStyle(
            palette[index],
            _DASHES[(index // 3 + cycle) % len(_DASHES)],
            _MARKERS[(index + cycle) % len(_MARKERS)],
        )

    return {row: style(number) for row, number in style_indices(rows).items()}


@contextmanager
def figure_style(salt: str) -> Iterator[None]:
    """Set the style of all figures and a backend without display within the context.

    The ids in an SVG file depend on ``salt``.
    """
    import matplotlib as mpl
    import seaborn

    mpl.use("agg", force=True)
    settings: dict[Any, Any] = {
        "svg.hashsalt": salt,
        "svg.fonttype": "path",  # readers need no fonts
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelcolor": INK,
        "axes.edgecolor": SOFT,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "text.color": INK,
        "legend.frameon": False,
        "figure.facecolor": "white",
        "figure.constrained_layout.h_pad": 0.07,
        "figure.constrained_layout.w_pad": 0.07,
    }
    with mpl.rc_context():
        mpl.rcdefaults()  # ignore the user's matplotlibrc
        with seaborn.axes_style("ticks"):
            mpl.rcParams.update(settings)
            yield


def escape_label(label: str, width: int | None = None) -> str:
    """Return a label escaped for matplotlib, wrapped to a width, with λ_init as a subscript."""
    lines = wrap(label, width, break_on_hyphens=False) if width is not None else [label]
    text = "\n".join(lines).replace("$", r"\$")
    return text.replace("λ_init", r"$\lambda_{\mathrm{init}}$")


def label_axes(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Set the labels and title of axes, and hide the upper and right spines."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


_NO_ROW = RowStyle(SOFT, (), "o")


def legend_handle(
    label: str,
    style: RowStyle = _NO_ROW,
    *,
    line_width: float = 0,
    marker_size: float = 5,
    hollow: bool = False,
) -> Line2D:
    """Return a legend entry in the style of a row: a line, a marker, or both."""
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=style.color, marker=style.marker if marker_size else "",
        ms=marker_size, lw=line_width,
        ls=((0, style.dash) if style.dash else "-") if line_width else "",
        label=escape_label(label),
        mfc="white" if hollow else style.color,
    )  # fmt: skip


def legend_below(figure: Figure | SubFigure, handles: Sequence[Line2D], *, ncols: int = 4) -> None:
    """Draw one legend for the whole figure below its panels."""
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(ncols, len(handles)),
        fontsize=8,
        handlelength=2.6,
    )


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure to ``stem``.svg and ``stem``.png atomically; return both paths.

    The files have no dates and versions.
    """
    import matplotlib.pyplot as plt

    formats: dict[str, dict[str, Any]] = {
        ".svg": {"metadata": {"Date": None, "Creator": None}},
        ".png": {"metadata": {"Software": None}, "dpi": _PNG_DPI},
    }
    written = []
    for suffix, options in formats.items():
        path = stem.with_name(stem.name + suffix)
        with replacing(path) as temporary:
            figure.savefig(temporary, **options)
        written.append(path)
    plt.close(figure)
    return written
