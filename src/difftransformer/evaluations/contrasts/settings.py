"""Report options of contrasts: the compared rows, the metric and replications."""

from collections.abc import Sequence

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.evaluation import Options as BaseOptions
from difftransformer.errors import nearest


class Pair(Settings):
    """A contrast: two rows of a section, one of which is subtracted from the other."""

    row: str = setting(meaning="Run of a row.")
    baseline: str = setting(meaning="Run of the row that is subtracted, seed by seed.")


class Options(BaseOptions):
    """Report options: the metric of the section's suite, and the pairs of rows to compare."""

    metric: str = setting(meaning="Metric of the suite's results.")
    column: Name = setting(meaning="Id of its column, also in claims and published tables.")
    header: str = setting(meaning="Header of the column.")
    decimals: int = setting(meaning="Decimals of a mean and of a difference.", ge=0)
    axis: str = setting(meaning="Label of the figure's axis, with unit and direction.")
    pairs: list[Pair] = setting(meaning="Contrasts from top to bottom.", min_length=1)
    replications_of: Name | None = setting(
        None, meaning="Paper of papers.yaml whose replications by others are shown; null: none."
    )
    notes: list[str] = setting([], meaning="Notes on the protocol.")

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ids of the columns that claims may test: the metric's column."""
        return (self.column,)

    @property
    def replicated(self) -> str | None:
        """Name of the paper whose published replications the section shows, or None."""
        return self.replications_of

    def check_rows(self, runs: Sequence[str]) -> None:
        """Check that each pair names two different rows of the section, and that no pair repeats.

        Raises:
            ValueError: A pair has an unknown row, equal rows, or is listed before.
        """
        for index, pair in enumerate(self.pairs):
            for key in ("row", "baseline"):
                if (run := getattr(pair, key)) not in runs:
                    raise ValueError(
                        f"pairs[{index}].{key}: '{run}' is none of its rows{nearest(run, runs)}"
                    )
            if pair.row == pair.baseline or pair in self.pairs[:index]:
                raise ValueError(
                    f"pairs[{index}]: needs two different rows, and each pair only once"
                )
