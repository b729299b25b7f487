"""What an evaluation's report is given: an artifact, one of its sections, and all results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice, SweepRow
from difftransformer.config.evaluation import Options
from difftransformer.config.evaluations import evaluation, module_of, suite_class
from difftransformer.config.run import PRETRAINED_SEED
from difftransformer.config.validation import validate
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import proxy_title, training_note
from difftransformer.reporting.drawing import Figure, Look, looks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from difftransformer.reporting.document import Section

O = TypeVar("O", bound=Options)  # noqa: E741 - the options of an evaluation
HOW_RUN = ("batch_size", "device", "backend", "precision")
"""Settings of a suite that change nothing of what is measured."""


@dataclass(frozen=True)
class View(Generic[O]):
    """One section of an artifact with the results behind it."""

    artifact: ArtifactSlice
    part: SectionSlice
    results: Results
    proxy: bool = False
    """Whether what was asked stands in for what the published numbers are about."""

    @property
    def options(self) -> O:
        """What the section tells its evaluation."""
        return self.part.options  # type: ignore[return-value]

    @property
    def title(self) -> str:
        """Heading of the section."""
        return self.part.title

    @property
    def rows(self) -> list[RowSlice]:
        """Rows from top to bottom."""
        return self.part.rows

    @property
    def seeds(self) -> list[int]:
        """Seeds of every row that is trained here."""
        return self.artifact.seeds

    def seeds_of(self, row: RowSlice) -> list[int]:
        """Seeds that a row was measured with; of a model from elsewhere there is one."""
        return [PRETRAINED_SEED] if row.pretrained else self.seeds

    @property
    def paper(self) -> Paper:
        """Published values of the same cells."""
        return Paper(self.artifact.paper)

    @property
    def compared_rows(self) -> list[RowSlice]:
        """Rows that are compared with another."""
        return [row for row in self.rows if row.against]

    @property
    def compared(self) -> bool:
        """Whether there are such rows."""
        return bool(self.compared_rows)

    @property
    def references(self) -> list[str]:
        """Labels of the rows that others are compared with, each once."""
        labels = {row.run: row.label for row in self.rows}
        return list(dict.fromkeys(labels[str(row.against)] for row in self.compared_rows))

    @property
    def sections(self) -> "list[View[O]]":
        """All sections of the artifact that this evaluation makes, in their order."""
        parts = self.artifact.sections
        own = [part for part in parts if part.evaluation == self.part.evaluation]
        return [View(self.artifact, part, self.results) for part in own]

    @property
    def look(self) -> dict[str, Look]:
        """Look of each row, by its run."""
        return looks({row.run: row.look for row in self.rows})

    @cached_property
    def suite(self) -> Any:
        """Settings of the section's suite as all rows were measured, typed.

        Raises:
            UserError: A result is missing, or rows were measured with different settings.
        """
        return shared_suite(self.evaluated())

    def having(self, **changes: Any) -> "View[O]":
        """Return it with other settings of the section."""
        return replace(self, part=self.part.model_copy(update=changes))

    def standing_in(self, items: str | None) -> "View[O]":
        """Return it as one about ``items`` in the place of a set; None: it is about the set."""
        titled = self.having(title=proxy_title(self.title, items))
        return replace(titled, proxy=items is not None)

    def evaluated(self, *rows: RowSlice, suite: str | None = None) -> list[Result]:
        """Results of a suite, the section's first when left out, for some rows or all."""
        name = suite or self.part.suites[0]
        return [
            self.results.evaluation(name, row.run, seed)
            for row in rows or self.rows
            for seed in self.seeds_of(row)
        ]

    def require_defined(self, names: Iterable[str]) -> None:
        """Check that all rows have metrics that are drawn.

        Raises:
            UserError: a job did not measure one, or recorded that it is undefined.
        """
        for name, result in product(names, self.evaluated()):
            defined(result, name)

    def trained(self, *rows: RowSlice) -> list[Result]:
        """Training results of some rows or all; of models from elsewhere there are none."""
        return [
            self.results.training(row.run, seed)
            for row in rows or self.rows
            if not row.pretrained
            for seed in self.seeds
        ]

    def swept(self, row: RowSlice) -> list[SweepRow]:
        """Learning rates of a row of a sweep, ascending."""
        found = (one for one in self.part.sweep if one.run == row.run)
        return sorted(found, key=lambda one: one.learning_rate)

    @property
    def rates(self) -> list[float]:
        """Every learning rate of a sweep, ascending."""
        return sorted({one.learning_rate for one in self.part.sweep})

    def detail(self, run: str, seed: int, name: str) -> Path:
        """Return a file that the section's suite left beside its result."""
        return self.results.detail(self.part.suites[0], run, seed, name)

    def mean_detail(self, row: RowSlice, name: str, key: str) -> "NDArray[np.floating]":
        """Mean over seeds of an array in a file that the section's suite left."""
        import numpy as np
        from safetensors.numpy import load_file

        found = [load_file(self.detail(row.run, seed, name))[key] for seed in self.seeds_of(row)]
        mean: NDArray[np.floating] = np.mean(found, axis=0)
        return mean

    def training_note(self) -> str:
        """Say budget, sizes and learning rates of the rows that are trained here."""
        ours = [row for row in self.rows if not row.pretrained]
        notes = [training_note(ours, self.trained(*ours))] if ours else []
        if len(ours) < len(self.rows):
            notes.append("Models from elsewhere have one value for all seeds.")
        return " ".join(notes)

    def compared_with(self) -> str:
        """Say which row the others are compared with."""
        if len(self.references) == 1:
            return f"row − {self.references[0]}"
        labels = {row.run: row.label for row in self.rows}
        pairs = [(row.label, labels[row.against]) for row in self.rows if row.against]
        return "; ".join(f"{label} − {other}" for label, other in pairs)

    def difference_note(self) -> list[str]:
        """Say what a difference is, where rows are compared."""
        note = f"Δ: paired difference, seed by seed, {self.compared_with()}."
        return [note] if self.compared else []

    def reference(self) -> str:
        """Ending of the columns of comparison: nothing where it compares as the first one does."""
        ours, theirs = (
            list(dict.fromkeys(row.against for row in one.rows if row.against))
            for one in (self, self.sections[0])
        )
        return "" if ours == theirs else "".join(f"_to_{run}" for run in ours)


class PromptMaps(NamedTuple):
    """Attention maps of one row on one prompt, [L, H, S, S], signed."""

    prompt: str
    run: str
    label: str
    tokens: list[str]
    weights: "NDArray[np.floating]"


def maps_of(view: View[Any]) -> list[PromptMaps]:
    """Return the maps that a reader of the report chooses from; most sections have none."""
    if not view.options.browsed:
        return []
    found: list[PromptMaps] = _report(view).maps(view)
    return found


def shared_suite(results: Sequence[Result]) -> Any:
    """Return the typed settings of a suite that all results share.

    Raises:
        UserError: They were measured differently; names two of them and a setting.
    """
    first, *others = results
    config: Mapping[str, Any] = first.settings["config"]
    for other in others:
        theirs = other.settings["config"]
        for key in sorted({*config, *theirs} - {*HOW_RUN}):
            if config.get(key) != theirs.get(key):
                raise UserError(
                    f"config.{key} is {config.get(key)} in {first.job_id} and {theirs.get(key)} in "
                    f"{other.job_id}, which share a table: rerun the older one"
                )
    return validate(suite_class(config.get("kind"), first.job_id), config, first.job_id)


def sections_of(view: View[Any]) -> "list[Section]":
    """Make what an evaluation shows of a section: one section of the table, or several.

    Raises:
        UserError: A result or a history is missing or lacks what a column shows, or rows were
            measured differently or at too few places for what the section compares.
        DataError: A history is too short, or rows differ in the places where they were measured.
    """
    made = _report(view).section(view)
    return made if isinstance(made, list) else [made]


def figure_of(view: View[Any]) -> Figure:
    """Draw the figure of an artifact; ``view`` is of its first section."""
    drawn: Figure = _report(view).figure(view)
    return drawn


def _report(view: View[Any]) -> Any:
    """Load the report by the evaluation's name, so that its imports are its own."""
    return import_module(module_of(evaluation(view.part.evaluation).name, "report"))
