"""Published numbers: they stand beside ours, and are never an input to them."""

from itertools import pairwise
from typing import Self

from pydantic import model_validator

from difftransformer.config.base import Settings, setting

Number = int | float | bool | None


class PaperRow(Settings):
    """One published row."""

    label: str = setting(meaning="Name of the row as printed")
    values: dict[str, Number] = setting(meaning="Published values by column id")


class PaperSeries(Settings):
    """One published curve."""

    label: str = setting(meaning="Name of the curve as printed")
    x: list[float] = setting(meaning="Horizontal values, ascending", min_length=1)
    y: list[float] = setting(meaning="Vertical values, one for each x", min_length=1)

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} values of x, but {len(self.y)} of y")
        if any(one >= two for one, two in pairwise(self.x)):
            raise ValueError(f"x must ascend, got {self.x}")
        return self


class PaperTable(Settings):
    """A published table or figure: stands beside our numbers, and is never an input to them."""

    title: str = setting(meaning="What the published table or figure is")
    source: str = setting(meaning="Document and number of the table or figure")
    scale: str = setting(meaning="Model size and tokens behind the numbers")
    rows: dict[str, PaperRow] = setting(
        {}, meaning="Published rows by the run, or the row of the artifact, that rebuilds them"
    )
    x: str | None = setting(None, meaning="What the x of the series are, with their unit")
    y: str | None = setting(None, meaning="What the y of the series are, with their unit")
    series: dict[str, PaperSeries] = setting(
        {}, meaning="Published curves by the run that rebuilds them"
    )
    notes: list[str] = setting([], meaning="Cautions, such as sources that disagree")

    @model_validator(mode="after")
    def _axes_belong_to_series(self) -> Self:
        if not self.rows and not self.series:
            raise ValueError("a published table or figure needs rows, series or both")
        if {self.x is None, self.y is None} != {not self.series}:
            raise ValueError("x and y say what the series are: give both with series, else none")
        return self


class PaperSize(Settings):
    """A published model size."""

    d_model: int = setting(meaning="Width of the residual stream", unit="features", gt=0)
    num_layers: int = setting(meaning="Decoder layers", unit="layers", gt=0)
    ffn_dim: int | None = setting(
        None,
        meaning="Hidden width of the feed-forward; null: stated as 8/3 of d_model",
        unit="features",
        gt=0,
    )
    diff_heads: int = setting(meaning="Heads of DIFF; the Transformer has twice as many", gt=0)
    head_dim: int = setting(meaning="Width of one softmax map", unit="features", gt=0)
    vocab_size: int = setting(meaning="Size of the vocabulary", unit="tokens", gt=0)
    lr: float = setting(meaning="Peak learning rate", gt=0)
    stated_parameters: float = setting(meaning="Size as the paper names it", unit="parameters")
    counted_parameters: int = setting(
        meaning="layers * (4 d^2 + 3 d ffn) + vocabulary * d, from the stated dimensions",
        unit="parameters",
    )
    note: str = setting(meaning="How the stated size relates to the stated dimensions")
    source: str = setting(meaning="Document and table number")


class PaperFile(Settings):
    """``config/paper_values.yaml``: published numbers, as references only."""

    tables: dict[str, PaperTable] = setting(meaning="Published tables by id")
    sizes: dict[str, PaperSize] = setting({}, meaning="Published model sizes by name")
