"""Pretrained models among the runs, their adaptations, and suites that can evaluate them."""

from dataclasses import dataclass
from functools import cached_property

from difftransformer.config.evaluation import AnyModel, Suite
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.run import PRETRAINED_BASE
from difftransformer.planning.sizes import Sizes


@dataclass(frozen=True, eq=False)
class PretrainedRuns:
    """The pretrained models and their adaptations among the runs of a scale."""

    resolver: ConfigResolver
    sizes: Sizes

    def includes(self, run: str) -> bool:
        """Return whether a run is a pretrained model or an adaptation of one."""
        entry = self.resolver.entry(run)
        return entry.pretrained is not None or entry.init_from == PRETRAINED_BASE

    @cached_property
    def too_long(self) -> frozenset[str]:
        """Adaptations with sequences longer than the pretrained model's context, which are skipped.

        The adaptations with the shortest sequences are never in it: the check of such a run fails.
        """
        if self.resolver.project.pretrained is None:
            return frozenset()
        adapted = (
            run
            for run in self.resolver.runs
            if self.includes(run) and self.resolver.entry(run).adapt is not None
        )
        configs = {run: self.sizes.run(run) for run in adapted}
        shortest = min((config.training.seq_len for config in configs.values()), default=0)
        return frozenset(
            run
            for run, config in configs.items()
            if config.training.seq_len > max(shortest, config.model.max_positions)
        )

    def dataset_of(self, suite: str, run: str) -> str | None:
        """Return the name of the dataset that a suite reads when it evaluates a run.

        None means that the suite reads the dataset on which the run was trained.
        """
        return self.resolver.suite(suite).base_suite.read_dataset(pretrained=self.includes(run))

    def suite_for(self, suite: str, run: str) -> Suite:
        """Return a suite's settings with `dataset` set to the dataset that it reads for a run."""
        return _settled(self.resolver.suite(suite), self.dataset_of(suite, run))

    def incompatibility(self, suite: str, run: str) -> str | None:
        """Return the reason why a suite cannot evaluate a pretrained model; None if it can."""
        config = self.resolver.suite(suite)
        if not self.includes(run):
            return None
        subject = f"row '{run}' is a pretrained model"
        if not config.measures_pretrained:
            return f"{subject}, which suite '{suite}' (evaluation {config.kind}) cannot measure"
        if (
            self.resolver.pretrained(run)
            and config.base_suite.reads_text
            and self.dataset_of(suite, run) is None
        ):
            problem = f"suite '{suite}' reads what a run was trained on"
            return f"{subject}, and {problem}: name a `dataset` or `pretrained_dataset`"
        return None


def _settled(suite: Suite, text: str | None) -> Suite:
    if isinstance(suite, AnyModel):
        return suite.model_copy(update={"dataset": text, "pretrained_dataset": None})
    if suite.base_suite is suite:
        return suite
    return suite.model_copy(update={"suite": _settled(suite.base_suite, text)})
