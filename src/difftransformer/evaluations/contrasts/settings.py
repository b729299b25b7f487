"""Which rows are contrasted, by which metric, and whose replications stand beside them."""

from collections.abc import Sequence

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Options as BaseOptions
from difftransformer.errors import nearest


class Pair(Settings):
    """Two rows of the section."""

    row: str = setting(meaning="Run of a row.")
    baseline: str = setting(meaning="Run of the row that is subtracted, seed by seed.")


class Options(BaseOptions):
    """What a section contrasts; nothing is measured but what its suite measures."""

    metric: str = setting(meaning="Metric of the suite's results.")
    column: Name = setting(meaning="Id of its column, also in claims and published tables.")
    header: str = setting(meaning="What stands above it.")
    decimals: int = setting(meaning="Decimals of a mean and of a difference.", ge=0)
    axis: str = setting(meaning="What the axis of the figure says, with the unit and the sides.")
    pairs: list[Pair] = setting(meaning="Contrasts from top to bottom.", min_length=1)
    replications_of: Name | None = setting(
        None,
        meaning="Paper of papers.yaml whose replications by others stand beside them; null: none.",
    )
    notes: list[str] = setting([], meaning="What a reader is told of the protocol.")

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The column of its metric."""
        return (self.column,)

    @property
    def replicated(self) -> str | None:
        """See `replications_of`."""
        return self.replications_of

    def check_rows(self, runs: Sequence[str]) -> None:
        """Both rows of every pair are there, each pair once."""
        for index, pair in enumerate(self.pairs):
            for key in ("row", "baseline"):
                if (run := getattr(pair, key)) not in runs:
                    raise ValueError(
                        f"pairs[{index}].{key}: '{run}' is none of its rows{nearest(run, runs)}"
                    )
            if pair.row == pair.baseline or pair in self.pairs[:index]:
                raise ValueError(f"pairs[{index}]: needs two rows, and other ones than before")
