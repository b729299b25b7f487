"""Input of an evaluation's report: an artifact, one of its sections, and all results."""

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
"""Settings of a suite that do not change what is measured."""


@dataclass(frozen=True)
class SectionContext(Generic[O]):
    """One section of an artifact (table or figure), with the results of its rows."""

    artifact: ResolvedArtifact
    section: ResolvedSection
    results: Results
    proxy: bool = False
    """Whether the items are a synthetic proxy for those of the published numbers."""

    @property
    def options(self) -> O:
        """Options of the section for its evaluation."""
        return self.section.options  # type: ignore[return-value]

    @property
    def title(self) -> str:
        """Heading of the section."""
        return self.section.title

    @property
    def rows(self) -> list[ResolvedRow]:
        """Rows of the section from top to bottom."""
        return self.section.rows

    @property
    def seeds(self) -> list[int]:
        """Seeds of all models that are trained here, not pretrained."""
        return self.artifact.seeds

    def seeds_of(self, row: ResolvedRow) -> list[int]:
        """Return the seeds of a row's model; a pretrained model has one."""
        return [PRETRAINED_SEED] if row.pretrained else self.seeds

    @property
    def published(self) -> PublishedValues:
        """Published values of the table's cells."""
        return PublishedValues(self.artifact.paper)

    @property
    def rows_with_baseline(self) -> list[ResolvedRow]:
        """Rows of the section that have a baseline."""
        return [row for row in self.rows if row.baseline]

    @property
    def has_baselines(self) -> bool:
        """Whether any row of the section has a baseline."""
        return bool(self.rows_with_baseline)

    @property
    def baseline_labels(self) -> list[str]:
        """Labels of the section's baselines, without duplicates."""
        labels = {row.run: row.label for row in self.rows}
        return list(dict.fromkeys(labels[str(row.baseline)] for row in self.rows_with_baseline))

    @property
    def sibling_contexts(self) -> "list[SectionContext[O]]":
        """Contexts of all of the artifact's sections with the same evaluation, in order."""
        return [
            SectionContext(self.artifact, section, self.results)
            for section in self.artifact.sections
            if section.evaluation == self.section.evaluation
        ]

    @property
    def styles(self) -> dict[str, RowStyle]:
        """Drawing style of each row, by its run."""
        return row_styles({row.run: row.color for row in self.rows})

    @cached_property
    def suite(self) -> Any:
        """Settings of the section's suite, which all results must share.

        Raises:
            UserError: A result is missing, or results have different settings.
        """
        return shared_suite(self.eval_results())

    def replace(self, **changes: Any) -> "SectionContext[O]":
        """Return a copy of the context in which some settings of the section are replaced."""
        return replace(self, section=self.section.model_copy(update=changes))

    def as_proxy(self, items: str | None) -> "SectionContext[O]":
        """Return a copy of the context whose title names ``items`` as a synthetic proxy.

        With None the section has no proxy.
        """
        context = self.replace(title=proxy_title(self.title, items))
        return replace(context, proxy=items is not None)

    def eval_results(self, *rows: ResolvedRow, suite: str | None = None) -> list[Result]:
        """Return the results of a suite, by default the section's first, for all rows or some."""
        name = suite or self.section.suites[0]
        return [
            self.results.evaluation(name, row.run, seed)
            for row in rows or self.rows
            for seed in self.seeds_of(row)
        ]

    def require_defined(self, names: Iterable[str]) -> None:
        """Check that all results of the section have defined values of the metrics ``names``.

        Raises:
            UserError: A result lacks a metric, or the metric is undefined.
        """
        for name, result in product(names, self.eval_results()):
            require_metric(result, name)

    def train_results(self, *rows: ResolvedRow) -> list[Result]:
        """Return the training results of all rows or some; pretrained models have none."""
        return [
            self.results.training(row.run, seed)
            for row in rows or self.rows
            if not row.pretrained
            for seed in self.seeds
        ]

    def sweep_rows(self, row: ResolvedRow) -> list[SweepRow]:
        """Return the runs of a row's learning-rate sweep, by ascending learning rate."""
        runs = (sweep for sweep in self.section.sweep if sweep.run == row.run)
        return sorted(runs, key=lambda sweep: sweep.learning_rate)

    @property
    def learning_rates(self) -> list[float]:
        """All learning rates of the section's sweeps, ascending."""
        return sorted({sweep.learning_rate for sweep in self.section.sweep})

    def detail(self, run: str, seed: int, name: str) -> Path:
        """Return the path of the file ``name`` that the section's suite wrote with its result."""
        return self.results.detail(self.section.suites[0], run, seed, name)

    def mean_detail(self, row: ResolvedRow, name: str, key: str) -> "NDArray[np.floating]":
        """Return an array in a file of the section's suite, averaged over the seeds of a row.

        ``name`` is the file that the suite wrote next to its result, ``key`` the array in it.
        """
        import numpy as np
        from safetensors.numpy import load_file

        paths = [self.detail(row.run, seed, name) for seed in self.seeds_of(row)]
        mean: NDArray[np.floating] = np.mean([load_file(path)[key] for path in paths], axis=0)
        return mean

    def training_note(self) -> str:
        """Return a table note on the tokens, sizes and learning rates of models trained here."""
        ours = [row for row in self.rows if not row.pretrained]
        notes = [training_note(ours, self.train_results(*ours))] if ours else []
        if len(ours) < len(self.rows):
            notes.append("Pretrained models have one value for all seeds.")
        return " ".join(notes)

    def difference_formula(self) -> str:
        """Return the formula of the paired differences, such as "row − Transformer"."""
        if len(self.baseline_labels) == 1:
            return f"row − {self.baseline_labels[0]}"
        labels = {row.run: row.label for row in self.rows}
        pairs = [(row.label, labels[row.baseline]) for row in self.rows if row.baseline]
        return "; ".join(f"{label} − {other}" for label, other in pairs)

    def difference_note(self) -> list[str]:
        """Return a list with the table note that defines Δ, empty if no row has a baseline."""
        note = f"Δ: difference paired by seed, {self.difference_formula()}."
        return [note] if self.has_baselines else []

    def difference_suffix(self) -> str:
        """Return the suffix in the ids of columns with differences.

        It names the baselines if they are not those of the first section.
        """
        ours, first = (
            list(dict.fromkeys(row.baseline for row in context.rows if row.baseline))
            for context in (self, self.sibling_contexts[0])
        )
        return "" if ours == first else "".join(f"_to_{run}" for run in ours)


class PromptMaps(NamedTuple):
    """Signed attention weights of one model on one prompt, [L, H, S, S]."""

    prompt: str
    run: str
    label: str
    tokens: list[str]
    weights: "NDArray[np.floating]"


def get_prompt_maps(context: SectionContext[Any]) -> list[PromptMaps]:
    """Return the attention maps of a section that readers of the report can browse, often none."""
    if not context.options.browsed:
        return []
    maps: list[PromptMaps] = _report(context).maps(context)
    return maps


def shared_suite(results: Sequence[Result]) -> Any:
    """Return the typed settings of the suite of some results, which must all be the same.

    Raises:
        UserError: A setting differs; the message names two results and the setting.
    """
    first, *others = results
    config: Mapping[str, Any] = first.settings["config"]
    for result in others:
        other = result.settings["config"]
        for key in sorted({*config, *other} - {*EXECUTION_SETTINGS}):
            if config.get(key) != other.get(key):
                raise UserError(
                    f"config.{key} is {config.get(key)} in {first.job_id} and {other.get(key)} in "
                    f"{result.job_id}, which share a table; rerun the older job"
                )
    return validate(suite_class(config.get("kind"), first.job_id), config, first.job_id)


def build_sections(context: SectionContext[Any]) -> "list[Section]":
    """Return the table sections that the section's evaluation builds from its results.

    Raises:
        UserError: A result or history is missing or lacks a metric, or results cannot be compared.
        DataError: A history is too short, or models were measured at different steps.
    """
    sections = _report(context).section(context)
    return sections if isinstance(sections, list) else [sections]


def draw_figure(context: SectionContext[Any]) -> Figure:
    """Return the drawn figure of an artifact; ``context`` belongs to its first section."""
    figure: Figure = _report(context).figure(context)
    return figure


def _report(context: SectionContext[Any]) -> Any:
    """Import the report module of the section's evaluation, and of no other evaluation."""
    return import_module(module_of(evaluation(context.section.evaluation).name, "report"))
