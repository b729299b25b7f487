"""A scale: its sizes and budgets, and the machine that its costs are foreseen for."""

from itertools import chain, count, islice
from typing import Annotated, Any

from pydantic import Field

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.project import MOST_SEEDS, RecipeEntry, Seeds, SweepEntry


class MachineConfig(Settings):
    """The machine that an expensive scale is planned for; nothing of it reaches a job."""

    gpu: str = setting(meaning="Name of the GPU, for people")
    memory_gib: float = setting(meaning="Memory of one GPU", unit="GiB", gt=0)
    peak_tflops: float = setting(
        meaning="Dense products of one GPU in bf16, as its maker states them", unit="TFLOP/s", gt=0
    )
    mfu: float = setting(meaning="Share of that peak which training is taken to reach", gt=0, le=1)
    mfu_source: str = setting(
        "stated, not measured", meaning="Where that share is from; the plan says it beside it"
    )
    gpus_per_node: int = setting(8, meaning="GPUs of one node", unit="GPUs", gt=0)
    node_gb_s: float = setting(
        450.0,
        meaning="What one GPU sends to others of its node, each way",
        unit="GB/s",
        source="NVLink 4 of an H100: 900 GB/s both ways",
        gt=0,
    )
    network_gb_s: float = setting(
        50.0,
        meaning="What one GPU's share of the network sends, each way",
        unit="GB/s",
        source="one port of 400 Gbit/s a GPU",
        gt=0,
    )
    hop_us: float = setting(
        5.0, meaning="What each hop of a ring adds to a collective: stated", unit="us", ge=0
    )

    @property
    def speed(self) -> float:
        """Operations that training does on one GPU in a second."""
        return self.mfu * self.peak_tflops * 1e12


class ScaleConfig(Settings):
    """One file of ``config/scales``: the whole project at one size."""

    description: str = setting(meaning="What the scale is for, and on which machine")
    machine: MachineConfig | None = setting(
        None, meaning="Machine that `difftransformer estimate-cost` reckons with"
    )
    recipes: dict[Name, RecipeEntry] = setting(meaning="Experiments by name")
    runs: dict[Name, dict[str, Any]] = setting(
        {}, meaning="Changes to entries of runs.yaml at this scale, and runs of this scale alone"
    )
    datasets: dict[str, dict[str, Any]] = setting(
        {}, meaning="Changes to entries of datasets.yaml at this scale"
    )
    suites: dict[str, dict[str, Any]] = setting(
        {}, meaning="Changes to entries of evaluations.yaml at this scale"
    )
    learning_rates: dict[str, float] = setting(
        {},
        meaning="Peak learning rate of single runs, chosen by the sweep; others use that of their "
        "nearest base at the same recipe, or their recipe's",
        unit="per step",
    )
    timings: dict[Name, dict[str, Any]] = setting(
        {},
        meaning="What is timed, by evaluation, see its settings; what is not here is not built at "
        "this scale",
    )
    size_grids: dict[str, list[str]] = setting(
        {},
        meaning="Recipes at which the rows of a section with that `size_grid` are trained, "
        "ascending: "
        "model sizes, or budgets. A run at the recipe it has anyway is itself, at another one it "
        "is called {run}_{recipe}",
    )
    sweeps: dict[str, SweepEntry] = setting({}, meaning="Learning-rate sweeps by artifact")
    proxies: dict[str, dict[str, str | None]] = setting(
        {},
        meaning="Runs that stand in for rows of artifacts at this scale: artifact, then run of the "
        "row, then the run it shows here, or null to leave it out; published values follow",
    )
    seeds: dict[str, Annotated[int, Field(ge=1, le=MOST_SEEDS)] | Seeds] = setting(
        {},
        meaning="Seeds that an artifact has where nobody says: how many of those that are not "
        "exploratory, or a list, which a larger count continues; those not here have one",
    )
    exploratory_seeds: list[int] = setting(
        [],
        meaning="Seeds whose results have been looked at, such as those that choices were made on: "
        "a count passes over them, and they test no claim",
    )
    not_testable: dict[str, str] = setting(
        {},
        meaning="Claims that the scale cannot test whatever comes out, with the reason: by claim, "
        "by artifact, or `all`",
    )

    def listed_seeds(self, artifact: str) -> list[int]:
        """Return the seeds that an artifact has by name; empty: it has as many as `seeds` says."""
        entry = self.seeds.get(artifact)
        return entry if isinstance(entry, list) else []

    def first_seeds(self, artifact: str, number: int | None) -> list[int]:
        """Return the first seeds of an artifact, those of its list before larger ones.

        Args:
            artifact: Table or figure.
            number: How many; None: as many as the scale gives it.
        """
        entry, listed = self.seeds.get(artifact, 1), self.listed_seeds(artifact)
        looked_at = set(self.exploratory_seeds)
        larger = (seed for seed in count(max(listed, default=-1) + 1) if seed not in looked_at)
        default = entry if isinstance(entry, int) else len(entry)
        return list(islice(chain(listed, larger), number or default))
