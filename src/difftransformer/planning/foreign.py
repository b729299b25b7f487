"""Which runs are models from elsewhere, or made of one, and what can be asked of them."""

from dataclasses import dataclass
from functools import cached_property

from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import PRETRAINED_BASE
from difftransformer.planning.sizes import Sizes
from difftransformer.provenance.model_files import model_files


@dataclass(frozen=True, eq=False)
class Foreign:
    """Models from elsewhere, and what adapting one makes, among the runs of a scale."""

    catalogue: Catalogue
    sizes: Sizes

    def trained(self, run: str) -> bool:
        """Whether a run is trained here; it is a model from elsewhere else."""
        return self.catalogue.pretrained(run) is None

    def includes(self, run: str) -> bool:
        """Whether a run is a model from elsewhere, or what adapting one makes."""
        return not self.trained(run) or self.catalogue.parent(run) == PRETRAINED_BASE

    def adapted(self) -> list[str]:
        """Return the runs that adapt another one, from elsewhere or ours."""
        return [name for name in self.catalogue.runs if self.catalogue.adaptation(name) is not None]

    @cached_property
    def too_long(self) -> frozenset[str]:
        """Adaptations of a model from elsewhere that has room for shorter ones, and not for these.

        One that has room for none is told so where a run is checked.

        Raises:
            CheckpointError: There is no such model.
        """
        if self.catalogue.project.pretrained is None:
            return frozenset()
        model_files(self.catalogue.project.pretrained)
        known = {run: self.sizes.run(run) for run in self.adapted() if self.includes(run)}
        shortest = min(one.training.seq_len for one in known.values())
        return frozenset(
            run
            for run, one in known.items()
            if one.training.seq_len > max(shortest, one.model.max_positions)
        )

    def text(self, suite: str, run: str) -> str | None:
        """Name the dataset whose text a suite reads in the place of a run's own; None: its own."""
        return self.catalogue.suite(suite).asked.read_dataset(foreign=self.includes(run))

    def measures(self, suite: str, run: str) -> bool:
        """Whether a suite measures what a run is."""
        asked = self.catalogue.suite(suite)
        if not self.includes(run):
            return True
        knows_text = self.trained(run) or not asked.asked.reads_text
        return asked.measures_pretrained and (knows_text or self.text(suite, run) is not None)

    def refusal(self, suite: str, run: str) -> str:
        """Say why a suite does not measure a run."""
        asked, who = self.catalogue.suite(suite), f"row '{run}' is a model from elsewhere"
        if asked.measures_pretrained:
            own = f"suite '{suite}' reads what a run was trained on: name a `dataset`"
            return f"{who}, and {own}"
        return f"{who}, which suite '{suite}' (measurement {asked.kind}) cannot measure"
