"""What the trainings of an expensive scale cost, from their settings alone.

Operations are those of `models.sizes`, each token's forward and backward pass; hours are these over
the peak of a GPU times the share of it that the scale states.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from difftransformer.config.scale import MachineConfig
from difftransformer.models.sizes import count_parameters
from difftransformer.planning.communication import bandwidth, operations, step_cost
from difftransformer.planning.plan import Plan
from difftransformer.planning.published import PublishedCost, published_costs
from difftransformer.reporting.number_format import format_count
from difftransformer.training.memory import estimate_memory
from difftransformer.training.methods import configure
from difftransformer.training.state_folder import KEPT_CHECKPOINTS

WORLDS = (8, 64, 512)
"""GPUs that wall time and communication are said for."""
_GIB = 2**30
_BYTES = 4
"""Of a published weight; a checkpoint has three such numbers for each, with AdamW's moments."""


@dataclass(frozen=True)
class TrainingCost:
    """What one training costs.

    Attributes:
        run: Its name; of its ``seeds`` each costs this.
        parameters: Of the model.
        tokens: Of the whole training.
        world_size: GPUs that train it together.
        gpu_hours: Of all of these.
        memory_gib: Of one of them at its peak: weights, gradients, moments, activations, logits.
        disk_gib: Final and kept weights, and as many checkpoints as stay, with the one that is
            being written.
    """

    run: str
    seeds: int
    parameters: int
    tokens: int
    world_size: int
    gpu_hours: float
    memory_gib: float
    disk_gib: float

    @property
    def days(self) -> float:
        """How long it takes."""
        return self.gpu_hours / self.world_size / 24


def training_costs(plan: Plan, artifacts: Sequence[str]) -> list[TrainingCost]:
    """Return what every training costs that artifacts need, the dearest first.

    Raises:
        ConfigError: The scale states no machine.
    """
    machine, seeds = plan.machine, plan.trainings(artifacts)
    costs = [_cost(plan, run, len(some), machine) for run, some in seeds.items()]
    return sorted(costs, key=lambda one: -one.gpu_hours * one.seeds)


def lines(plan: Plan, artifacts: Sequence[str], shown: int = 20) -> Iterator[str]:
    """Say what artifacts cost, the dearest trainings by name.

    Raises:
        ConfigError: The scale states no machine.
    """
    machine, costs = plan.machine, training_costs(plan, artifacts)
    hours = sum(one.gpu_hours * one.seeds for one in costs)
    disk = sum(one.disk_gib * one.seeds for one in costs)
    yield (
        f"{sum(one.seeds for one in costs)} trainings, {hours:,.0f} GPU-hours on {machine.gpu} at "
        f"{machine.mfu:.0%} of {machine.peak_tflops:g} TFLOP/s ({machine.mfu_source}), "
        f"{disk:,.0f} GiB of weights and checkpoints, {_data_gib(plan, costs):,.0f} GiB of tokens"
    )
    days = ", ".join(f"{hours / gpus / 24:,.0f} on {gpus}" for gpus in WORLDS)
    yield f"days, were all GPUs always busy: {days}"
    yield (
        f"{'run':40} {'seeds':>5} {'param':>7} {'tokens':>7} {'GPUs':>4} {'GPU-h':>9} {'days':>6} "
        f"{'GiB of ' + format(machine.memory_gib, 'g'):>9}"
    )
    for one in costs[:shown]:
        yield (
            f"{one.run:40} {one.seeds:5} {format_count(one.parameters):>7} "
            f"{format_count(one.tokens):>7} "
            f"{one.world_size:4} {one.gpu_hours:9,.0f} {one.days:6,.1f} {one.memory_gib:9,.0f}"
        )
    rest = costs[shown:]
    if rest:
        others = sum(one.gpu_hours * one.seeds for one in rest)
        largest = max(one.memory_gib for one in rest)
        yield f"and {len(rest)} runs more, {others:,.0f} GPU-hours, {largest:,.0f} GiB at most"
    yield from epochs(plan, [one.run for one in costs])
    yield from _communication(plan, costs, machine)
    yield from _published(published_costs(plan, artifacts, machine))


def _communication(
    plan: Plan, costs: Sequence[TrainingCost], machine: MachineConfig
) -> Iterator[str]:
    """Say what each size of a model sends, that several GPUs train."""
    sizes: dict[tuple[str, int, int], str] = {}
    for one in costs:
        training = plan.jobs.run(one.run).training
        if one.world_size > 1:
            key = (format_count(one.parameters), training.seq_len, training.batch_size)
            sizes.setdefault(key, one.run)
    if not sizes:
        return
    yield (
        f"communication of a step, seconds, and in parts of its computation; {machine.node_gb_s:g} "
        f"GB/s in a node of {machine.gpus_per_node}, {bandwidth(max(WORLDS), machine):g} between "
        f"nodes, {machine.hop_us:g} us a hop, nothing hidden; *: a sequence for each GPU"
    )
    for run in sizes.values():
        slice = plan.jobs.run(run)
        found = [step_cost(slice.model, slice.training, gpus, machine) for gpus in WORLDS]
        said = (
            f"{one.gpus}{'*' if one.sequences > slice.training.batch_size else ''} GPUs "
            f"{one.communication:.2f} ({one.share:.0%})"
            for one in found
        )
        yield f"{run:40} {', '.join(said)}"


def _published(costs: Sequence[PublishedCost]) -> Iterator[str]:
    """Say what models from elsewhere cost."""
    known = [one for one in costs if one.parameters is not None]
    if known:
        hours = sum(one.gpu_hours for one in known)
        size = sum(one.download_gib for one in known)
        yield (
            f"{len(known)} models from elsewhere, {hours:,.1f} GPU-hours as they are, "
            f"{size:,.0f} GiB to download"
        )
    for one in known:
        unknown = f", and {', '.join(one.unknown)}" if one.unknown else ""
        large = format_count(one.parameters or 0)
        yield (
            f"{one.run:40} {'':5} {large:>7} {format_count(one.tokens):>7}{unknown} "
            f"{one.gpu_hours:,.2f} GPU-h, {one.download_gib:,.1f} GiB"
        )
    for one in costs:
        if one.parameters is None:
            yield f"{one.run}: nobody says how large it is: give it `parameters` in runs.yaml"


def _data_gib(plan: Plan, costs: Sequence[TrainingCost]) -> float:
    """Packed tokens of all data sets that are trained on."""
    sizes: dict[str, float] = {}
    for one in costs:
        slice = plan.jobs.run(one.run)
        config = plan.resolver.dataset(slice.dataset)
        width = 2 if slice.model.vocab_size <= 2**16 else 4
        sizes[slice.dataset] = width * ((config.tokens or 0) + (config.validation_budget or 0))
    return sum(sizes.values()) / _GIB


def epochs(plan: Plan, runs: Iterable[str]) -> Iterator[str]:
    """Say how often the longest training on each data set goes through it, the oftenest first."""
    longest: dict[str, float] = {}
    for run in runs:
        slice = plan.jobs.run(run)
        has = plan.resolver.dataset(slice.dataset).tokens
        if has is not None:
            asked = slice.training.total_steps * slice.training.tokens_per_step / has
            longest[slice.dataset] = max(asked, longest.get(slice.dataset, 0.0))
    for dataset, times in sorted(longest.items(), key=lambda one: -one[1]):
        yield f"{dataset}: its longest training goes through it {times:.2g} times"


def _cost(plan: Plan, run: str, seeds: int, machine: MachineConfig) -> TrainingCost:
    slice = plan.jobs.run(run)
    config, parameters = slice.training, count_parameters(slice.model)
    tokens = config.total_steps * config.tokens_per_step
    flops = operations(slice.model, config) * tokens
    weights = _BYTES * parameters
    checkpoint = 3 * weights
    if slice.adapt is not None:
        counts = configure(slice.adapt, run).parameter_counts(slice.model)
        checkpoint = _BYTES * (counts.trained + counts.optimizer)
    # Kept weights lie with the checkpoints and with what is published; one checkpoint is written
    # while the others are there.
    kept = weights * (1 + 2 * len(config.intermediate_steps)) + checkpoint * (KEPT_CHECKPOINTS + 1)
    return TrainingCost(
        run=run,
        seeds=seeds,
        parameters=parameters,
        tokens=tokens,
        world_size=config.world_size,
        gpu_hours=flops / machine.speed / 3600,
        memory_gib=estimate_memory(slice, "cuda").peak / _GIB,
        disk_gib=kept / _GIB,
    )
