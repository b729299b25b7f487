"""Settings of a scale: its sizes, budgets, seeds, and the machine for which cost is estimated."""

from itertools import chain, count, islice
from typing import Annotated, Any

from pydantic import Field

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.project import MOST_SEEDS, RecipeEntry, Seeds, SweepEntry


class MachineConfig(Settings):
    """The machine for which an expensive scale is planned; no job reads it."""

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
        """FLOP/s that training is assumed to reach on one GPU."""
        return self.mfu * self.peak_tflops * 1e12


class ScaleConfig(Settings):
    """One file of ``config/scales``: settings that size the whole project."""

    description: str = setting(meaning="What the scale is for, and on which machine")
    machine: MachineConfig | None = setting(
        None, meaning="Machine for which `difftransformer estimate-cost` estimates"
    )
    recipes: dict[Name, RecipeEntry] = setting(meaning="Training recipes by name")
    runs: dict[Name, dict[str, Any]] = setting(
        {}, meaning="Changes to entries of runs.yaml at this scale, and runs that only it has"
    )
    datasets: dict[str, dict[str, Any]] = setting(
        {}, meaning="Changes to entries of datasets.yaml at this scale"
    )
    suites: dict[str, dict[str, Any]] = setting(
        {}, meaning="Changes to entries of evaluations.yaml at this scale"
    )
    learning_rates: dict[str, float] = setting(
        {},
        meaning="Tuned peak learning rate by run; other runs use that of their nearest base at the "
        "same recipe, else their recipe's",
        unit="per step",
    )
    timings: dict[Name, dict[str, Any]] = setting(
        {},
        meaning="Timing settings by evaluation; artifacts whose evaluation is missing here are not "
        "built at this scale",
    )
    size_grids: dict[str, list[str]] = setting(
        {},
        meaning="Recipes, ascending in model size or budget, at which every row of a section with "
        "that `size_grid` is trained. At its own recipe a run keeps its name; at another it is "
        "called {run}_{recipe}",
    )
    sweeps: dict[str, SweepEntry] = setting({}, meaning="Learning-rate sweeps by artifact")
    proxies: dict[str, dict[str, str | None]] = setting(
        {},
        meaning="Proxies for rows of artifacts at this scale: artifact, then run of the row, then "
        "the run shown in its place, or null to leave the row out; published values stay",
    )
    seeds: dict[str, Annotated[int, Field(ge=1, le=MOST_SEEDS)] | Seeds] = setting(
        {},
        meaning="Default seeds by artifact: a count of seeds that are not exploratory, or a list, "
        "which a larger count extends; other artifacts have one seed",
    )
    exploratory_seeds: list[int] = setting(
        [],
        meaning="Seeds whose results have informed choices, such as tuning: counts skip them, and "
        "they test no claim",
    )
    not_testable: dict[str, str] = setting(
        {}, meaning="Reasons why the scale cannot test claims, by claim, by artifact, or for `all`"
    )

    def listed_seeds(self, artifact: str) -> list[int]:
        """Return the seeds that the scale lists for an artifact; empty if it gives a number."""
        entry = self.seeds.get(artifact)
        return entry if isinstance(entry, list) else []

    def first_seeds(self, artifact: str, number: int | None) -> list[int]:
        """Return the first seeds of an artifact: listed seeds, then larger non-exploratory ones.

        Args:
            artifact: Name of the table or figure.
            number: Number of seeds; None: as many as the scale gives the artifact.
        """
        entry, listed = self.seeds.get(artifact, 1), self.listed_seeds(artifact)
        looked_at = set(self.exploratory_seeds)
        larger = (seed for seed in count(max(listed, default=-1) + 1) if seed not in looked_at)
        default = entry if isinstance(entry, int) else len(entry)
        return list(islice(chain(listed, larger), number or default))
