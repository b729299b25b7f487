"""Estimated cost of training runs, from their configuration.

FLOPs are those of the forward and backward pass per token (`models.sizes`). GPU-hours are FLOPs
divided by the product of peak FLOP/s and the model FLOP/s utilization (MFU) of the scale's machine.
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
"""Numbers of GPUs for which wall time and communication are estimated."""
_GIB = 2**30
_BYTES = 4
"""Bytes per weight. A checkpoint has three numbers per weight: itself and AdamW's two moments."""


@dataclass(frozen=True)
class TrainingCost:
    """Estimated cost of training one run.

    Attributes:
        run: Name of the run.
        seeds: Number of seeds; all other values are per seed.
        parameters: Number of parameters of the model.
        tokens: Number of training tokens.
        world_size: Number of GPUs.
        gpu_hours: GPU-hours over all GPUs.
        memory_gib: Peak memory per GPU in GiB: weights, gradients, moments, activations, logits.
        disk_gib: Disk space in GiB: final and intermediate weights, and checkpoints including the
            one being written.
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
        """Wall time of the training in days."""
        return self.gpu_hours / self.world_size / 24


def training_costs(plan: Plan, artifacts: Sequence[str]) -> list[TrainingCost]:
    """Return the cost of each training that artifacts need, most expensive first.

    Raises:
        ConfigError: The scale configures no machine.
    """
    machine, seeds = plan.machine, plan.trainings(artifacts)
    costs = [_cost(plan, run, len(some), machine) for run, some in seeds.items()]
    return sorted(costs, key=lambda cost: -cost.gpu_hours * cost.seeds)


def lines(plan: Plan, artifacts: Sequence[str], num_lines: int = 20) -> Iterator[str]:
    """Yield the output lines of the command `estimate-cost`: totals and the costliest trainings.

    Args:
        plan: The plan of the scale.
        artifacts: Names of the artifacts to build.
        num_lines: Number of trainings to list.

    Raises:
        ConfigError: The scale configures no machine.
    """
    machine, costs = plan.machine, training_costs(plan, artifacts)
    hours = sum(cost.gpu_hours * cost.seeds for cost in costs)
    disk = sum(cost.disk_gib * cost.seeds for cost in costs)
    yield (
        f"{sum(cost.seeds for cost in costs)} trainings, {hours:,.0f} GPU-hours on {machine.gpu} "
        f"at {machine.mfu:.0%} of {machine.peak_tflops:g} TFLOP/s ({machine.mfu_source}), "
        f"{disk:,.0f} GiB of weights and checkpoints, {_data_gib(plan, costs):,.0f} GiB of tokens"
    )
    days = ", ".join(f"{hours / gpus / 24:,.0f} on {gpus}" for gpus in WORLDS)
    yield f"days with all GPUs busy: {days}"
    yield (
        f"{'run':40} {'seeds':>5} {'param':>7} {'tokens':>7} {'GPUs':>4} {'GPU-h':>9} {'days':>6} "
        f"{'GiB of ' + format(machine.memory_gib, 'g'):>9}"
    )
    for cost in costs[:num_lines]:
        yield (
            f"{cost.run:40} {cost.seeds:5} {format_count(cost.parameters):>7} "
            f"{format_count(cost.tokens):>7} "
            f"{cost.world_size:4} {cost.gpu_hours:9,.0f} {cost.days:6,.1f} {cost.memory_gib:9,.0f}"
        )
    remaining = costs[num_lines:]
    if remaining:
        remaining_hours = sum(cost.gpu_hours * cost.seeds for cost in remaining)
        largest = max(cost.memory_gib for cost in remaining)
        yield (
            f"and {len(remaining)} runs more, {remaining_hours:,.0f} GPU-hours, "
            f"{largest:,.0f} GiB at most"
        )
    yield from epochs(plan, [cost.run for cost in costs])
    yield from _communication(plan, costs, machine)
    yield from _published(published_costs(plan, artifacts, machine))


def _communication(
    plan: Plan, costs: Sequence[TrainingCost], machine: MachineConfig
) -> Iterator[str]:
    """Yield lines on the communication time per step, one per model size on several GPUs."""
    sizes: dict[tuple[str, int, int], str] = {}
    for cost in costs:
        training = plan.jobs.run(cost.run).training
        if cost.world_size > 1:
            key = (format_count(cost.parameters), training.seq_len, training.batch_size)
            sizes.setdefault(key, cost.run)
    if not sizes:
        return
    yield (
        f"communication per step, seconds and share of computation; {machine.node_gb_s:g} "
        f"GB/s in a node of {machine.gpus_per_node}, {bandwidth(max(WORLDS), machine):g} between "
        f"nodes, {machine.hop_us:g} us per hop, no overlap; *: one sequence per GPU"
    )
    for run in sizes.values():
        run_config = plan.jobs.run(run)
        step_costs = [
            step_cost(run_config.model, run_config.training, gpus, machine) for gpus in WORLDS
        ]
        by_gpus = (
            f"{step.gpus}{'*' if step.sequences > run_config.training.batch_size else ''} GPUs "
            f"{step.communication:.2f} ({step.share:.0%})"
            for step in step_costs
        )
        yield f"{run:40} {', '.join(by_gpus)}"


def _published(costs: Sequence[PublishedCost]) -> Iterator[str]:
    """Yield lines on the cost of pretrained models."""
    stated = [cost for cost in costs if cost.parameters is not None]
    if stated:
        hours = sum(cost.gpu_hours for cost in stated)
        size = sum(cost.download_gib for cost in stated)
        yield (
            f"{len(stated)} pretrained models, {hours:,.1f} GPU-hours of evaluation, "
            f"{size:,.0f} GiB to download"
        )
    for cost in stated:
        unknown = f", and {', '.join(cost.unknown)}" if cost.unknown else ""
        large = format_count(cost.parameters or 0)
        yield (
            f"{cost.run:40} {'':5} {large:>7} {format_count(cost.tokens):>7}{unknown} "
            f"{cost.gpu_hours:,.2f} GPU-h, {cost.download_gib:,.1f} GiB"
        )
    for cost in costs:
        if cost.parameters is None:
            yield f"{cost.run}: unknown size: set `parameters` in runs.yaml"


def _data_gib(plan: Plan, costs: Sequence[TrainingCost]) -> float:
    """Return the GiB of the packed tokens of all training datasets."""
    sizes: dict[str, float] = {}
    for cost in costs:
        run_config = plan.jobs.run(cost.run)
        config = plan.resolver.dataset(run_config.dataset)
        width = 2 if run_config.model.vocab_size <= 2**16 else 4
        sizes[run_config.dataset] = width * ((config.tokens or 0) + (config.validation_budget or 0))
    return sum(sizes.values()) / _GIB


def epochs(plan: Plan, runs: Iterable[str]) -> Iterator[str]:
    """Yield a line per dataset with the most epochs that any of ``runs`` trains on it.

    The dataset with the most epochs comes first.
    """
    longest: dict[str, float] = {}
    for run in runs:
        run_config = plan.jobs.run(run)
        dataset_tokens = plan.resolver.dataset(run_config.dataset).tokens
        if dataset_tokens is not None:
            epochs_of_run = (
                run_config.training.total_steps
                * run_config.training.tokens_per_step
                / dataset_tokens
            )
            longest[run_config.dataset] = max(epochs_of_run, longest.get(run_config.dataset, 0.0))
    for dataset, times in sorted(longest.items(), key=lambda item: -item[1]):
        yield f"{dataset}: {times:.2g} epochs in its longest training"


def _cost(plan: Plan, run: str, seeds: int, machine: MachineConfig) -> TrainingCost:
    run_config = plan.jobs.run(run)
    config, parameters = run_config.training, count_parameters(run_config.model)
    tokens = config.total_steps * config.tokens_per_step
    flops = operations(run_config.model, config) * tokens
    weights = _BYTES * parameters
    checkpoint = 3 * weights
    if run_config.adapt is not None:
        counts = configure(run_config.adapt, run).parameter_counts(run_config.model)
        checkpoint = _BYTES * (counts.trained + counts.optimizer)
    # Intermediate weights are stored twice, in the state and in the output folder; one checkpoint
    # is written while the previous ones still exist.
    stored = weights * (1 + 2 * len(config.intermediate_steps)) + checkpoint * (
        KEPT_CHECKPOINTS + 1
    )
    return TrainingCost(
        run=run,
        seeds=seeds,
        parameters=parameters,
        tokens=tokens,
        world_size=config.world_size,
        gpu_hours=flops / machine.speed / 3600,
        memory_gib=estimate_memory(run_config, "cuda").peak / _GIB,
        disk_gib=stored / _GIB,
    )
