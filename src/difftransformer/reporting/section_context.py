"""What an evaluation's report is given: an artifact, one of its sections, and all results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from difftransformer.config.evaluation import Options
from difftransformer.config.evaluations import evaluation, module_of, suite_class
from difftransformer.config.resolved_artifacts import (
    ResolvedArtifact,
    ResolvedRow,
    ResolvedSection,
    SweepRow,
)
from difftransformer.config.run import PRETRAINED_SEED
from difftransformer.config.validation import validate
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import PublishedValues
from difftransformer.reporting.collect import Results, require_metric
from difftransformer.reporting.drawing import Figure, RowStyle, row_styles
from difftransformer.reporting.table_notes import proxy_title, training_note

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from difftransformer.reporting.document import Section

O = TypeVar("O", bound=Options)  # noqa: E741 - the options of an evaluation
EXECUTION_SETTINGS = ("batch_size", "device", "backend", "precision")
"""Settings of a suite that change nothing of what is measured."""


@dataclass(frozen=True)
class SectionContext(Generic[O]):
    """One section of an artifact with the results behind it."""

    artifact: ResolvedArtifact
    section: ResolvedSection
    results: Results
    proxy: bool = False
    """Whether what was asked stands in for what the published numbers are about."""

    @property
    def options(self) -> O:
        """What the section tells its evaluation."""
        return self.section.options  # type: ignore[return-value]

    @property
    def title(self) -> str:
        """Heading of the section."""
        return self.section.title

    @property
    def rows(self) -> list[ResolvedRow]:
        """Rows from top to bottom."""
        return self.section.rows

    @property
    def seeds(self) -> list[int]:
        """Seeds of every row that is trained here."""
        return self.artifact.seeds

    def seeds_of(self, row: ResolvedRow) -> list[int]:
        """Seeds that a row was measured with; of a pretrained model there is one."""
        return [PRETRAINED_SEED] if row.pretrained else self.seeds

    @property
    def published(self) -> PublishedValues:
        """Published values of the same cells."""
        return PublishedValues(self.artifact.paper)

    @property
    def rows_with_baseline(self) -> list[ResolvedRow]:
        """Rows that are compared with another."""
        return [row for row in self.rows if row.baseline]

    @property
    def has_baselines(self) -> bool:
        """Whether there are such rows."""
        return bool(self.rows_with_baseline)

    @property
    def baseline_labels(self) -> list[str]:
        """Labels of the rows that others are compared with, each once."""
        labels = {row.run: row.label for row in self.rows}
        return list(dict.fromkeys(labels[str(row.baseline)] for row in self.rows_with_baseline))

    @property
    def sibling_contexts(self) -> "list[SectionContext[O]]":
        """All sections of the artifact that this evaluation makes, in their order."""
        parts = self.artifact.sections
        own = [part for part in parts if part.evaluation == self.section.evaluation]
        return [SectionContext(self.artifact, part, self.results) for part in own]

    @property
    def styles(self) -> dict[str, RowStyle]:
        """Look of each row, by its run."""
        return row_styles({row.run: row.color for row in self.rows})

    @cached_property
    def suite(self) -> Any:
        """Settings of the section's suite as all rows were measured, typed.

        Raises:
            UserError: A result is missing, or rows were measured with different settings.
        """
        return shared_suite(self.eval_results())

    def replace(self, **changes: Any) -> "SectionContext[O]":
        """Return it with other settings of the section."""
        return replace(self, section=self.section.model_copy(update=changes))

    def as_proxy(self, items: str | None) -> "SectionContext[O]":
        """Return it as one about ``items`` in the place of a set; None: it is about the set."""
        titled = self.replace(title=proxy_title(self.title, items))
        return replace(titled, proxy=items is not None)

    def eval_results(self, *rows: ResolvedRow, suite: str | None = None) -> list[Result]:
        """Results of a suite, the section's first when left out, for some rows or all."""
        name = suite or self.section.suites[0]
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
        for name, result in product(names, self.eval_results()):
            require_metric(result, name)

    def train_results(self, *rows: ResolvedRow) -> list[Result]:
        """Training results of some rows or all; of pretrained models there are none."""
        return [
            self.results.training(row.run, seed)
            for row in rows or self.rows
            if not row.pretrained
            for seed in self.seeds
        ]

    def sweep_rows(self, row: ResolvedRow) -> list[SweepRow]:
        """Learning rates of a row of a sweep, ascending."""
        found = (one for one in self.section.sweep if one.run == row.run)
        return sorted(found, key=lambda one: one.learning_rate)

    @property
    def learning_rates(self) -> list[float]:
        """Every learning rate of a sweep, ascending."""
        return sorted({one.learning_rate for one in self.section.sweep})

    def detail(self, run: str, seed: int, name: str) -> Path:
        """Return a file that the section's suite left beside its result."""
        return self.results.detail(self.section.suites[0], run, seed, name)

    def mean_detail(self, row: ResolvedRow, name: str, key: str) -> "NDArray[np.floating]":
        """Mean over seeds of an array in a file that the section's suite left."""
        import numpy as np
        from safetensors.numpy import load_file

        found = [load_file(self.detail(row.run, seed, name))[key] for seed in self.seeds_of(row)]
        mean: NDArray[np.floating] = np.mean(found, axis=0)
        return mean

    def training_note(self) -> str:
        """Say budget, sizes and learning rates of the rows that are trained here."""
        ours = [row for row in self.rows if not row.pretrained]
        notes = [training_note(ours, self.train_results(*ours))] if ours else []
        if len(ours) < len(self.rows):
            notes.append("Pretrained models have one value for all seeds.")
        return " ".join(notes)

    def difference_formula(self) -> str:
        """Say which row the others are compared with."""
        if len(self.baseline_labels) == 1:
            return f"row − {self.baseline_labels[0]}"
        labels = {row.run: row.label for row in self.rows}
        pairs = [(row.label, labels[row.baseline]) for row in self.rows if row.baseline]
        return "; ".join(f"{label} − {other}" for label, other in pairs)

    def difference_note(self) -> list[str]:
        """Say what a difference is, where rows are compared."""
        note = f"Δ: paired difference, seed by seed, {self.difference_formula()}."
        return [note] if self.has_baselines else []

    def difference_suffix(self) -> str:
        """Ending of the columns of comparison: nothing where it compares as the first one does."""
        ours, theirs = (
            list(dict.fromkeys(row.baseline for row in one.rows if row.baseline))
            for one in (self, self.sibling_contexts[0])
        )
        return "" if ours == theirs else "".join(f"_to_{run}" for run in ours)


class PromptMaps(NamedTuple):
    """Attention maps of one row on one prompt, [L, H, S, S], signed."""

    prompt: str
    run: str
    label: str
    tokens: list[str]
    weights: "NDArray[np.floating]"


def get_prompt_maps(context: SectionContext[Any]) -> list[PromptMaps]:
    """Return the maps that a reader of the report chooses from; most sections have none."""
    if not context.options.browsed:
        return []
    found: list[PromptMaps] = _report(context).maps(context)
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
        for key in sorted({*config, *theirs} - {*EXECUTION_SETTINGS}):
            if config.get(key) != theirs.get(key):
                raise UserError(
                    f"config.{key} is {config.get(key)} in {first.job_id} and {theirs.get(key)} in "
                    f"{other.job_id}, which share a table: rerun the older one"
                )
    return validate(suite_class(config.get("kind"), first.job_id), config, first.job_id)


def build_sections(context: SectionContext[Any]) -> "list[Section]":
    """Make what an evaluation shows of a section: one section of the table, or several.

    Raises:
        UserError: A result or a history is missing or lacks what a column shows, or rows were
            measured differently or at too few places for what the section compares.
        DataError: A history is too short, or rows differ in the places where they were measured.
    """
    made = _report(context).section(context)
    return made if isinstance(made, list) else [made]


def draw_figure(context: SectionContext[Any]) -> Figure:
    """Draw the figure of an artifact; ``context`` is of its first section."""
    drawn: Figure = _report(context).figure(context)
    return drawn


def _report(context: SectionContext[Any]) -> Any:
    """Load the report by the evaluation's name, so that its imports are its own."""
    return import_module(module_of(evaluation(context.section.evaluation).name, "report"))
