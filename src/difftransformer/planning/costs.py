"""What the trainings of an expensive scale cost, from their settings alone.

Operations are those of `models.sizes`, each token's forward and backward pass; hours are these over
the peak of a GPU times the share of it that the scale states.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from difftransformer.config.project import MachineConfig
from difftransformer.errors import ConfigError
from difftransformer.models.sizes import count_parameters, training_flops
from difftransformer.planning.plan import Plan
from difftransformer.training.memory import states_per_process

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
        world: GPUs that train it together.
        gpu_hours: Of all of these.
        states_gib: Weights, gradients and moments on one of them, without activations.
        disk_gib: Final and kept weights, and as many checkpoints as stay.
    """

    run: str
    seeds: int
    parameters: int
    tokens: int
    world: int
    gpu_hours: float
    states_gib: float
    disk_gib: float

    @property
    def days(self) -> float:
        """How long it takes."""
        return self.gpu_hours / self.world / 24


def training_costs(plan: Plan, artifacts: Sequence[str]) -> list[TrainingCost]:
    """Return what every training costs that artifacts need, the dearest first.

    Raises:
        ConfigError: The scale states no machine.
    """
    machine = _machine(plan)
    seeds: dict[str, set[int]] = {}
    for artifact in artifacts:
        for run in plan.artifacts.runs(artifact):
            for name in _lineage(plan, run):
                seeds.setdefault(name, set()).update(plan.artifacts.seeds(artifact))
    costs = [_cost(plan, run, len(some), machine) for run, some in seeds.items()]
    return sorted(costs, key=lambda one: -one.gpu_hours * one.seeds)


def lines(plan: Plan, artifacts: Sequence[str], shown: int = 20) -> Iterator[str]:
    """Say what artifacts cost, the dearest trainings by name."""
    machine, costs = _machine(plan), training_costs(plan, artifacts)
    hours = sum(one.gpu_hours * one.seeds for one in costs)
    disk = sum(one.disk_gib * one.seeds for one in costs)
    yield (
        f"{sum(one.seeds for one in costs)} trainings, {hours:,.0f} GPU-hours on {machine.card} at "
        f"{machine.mfu:.0%} of {machine.peak_tflops:g} TFLOP/s (stated, not measured), "
        f"{disk:,.0f} GiB of weights and checkpoints"
    )
    days = ", ".join(f"{hours / count / 24:,.0f} on {count}" for count in (8, 64, 512))
    yield f"days, were all GPUs always busy: {days}"
    yield f"{'run':40} {'seeds':>5} {'param':>7} {'tokens':>7} {'GPUs':>4} {'GPU-h':>9} {'days':>6}"
    for one in costs[:shown]:
        yield (
            f"{one.run:40} {one.seeds:5} {_short(one.parameters):>7} {_short(one.tokens):>7} "
            f"{one.world:4} {one.gpu_hours:9,.0f} {one.days:6,.1f}{_too_large(one, machine)}"
        )
    rest = costs[shown:]
    if rest:
        others = sum(one.gpu_hours * one.seeds for one in rest)
        yield f"and {len(rest)} runs more, {others:,.0f} GPU-hours"
    yield from epochs(plan, [one.run for one in costs])


def epochs(plan: Plan, runs: Iterable[str]) -> Iterator[str]:
    """Say how often the longest training on each data set goes through it, where more than once."""
    longest: dict[str, float] = {}
    for run in runs:
        slice = plan.jobs.run(run)
        has = plan.catalogue.dataset(slice.dataset).tokens
        if has is not None:
            asked = slice.training.total_steps * slice.training.tokens_per_step / has
            longest[slice.dataset] = max(asked, longest.get(slice.dataset, 0.0))
    for dataset, times in longest.items():
        if times > 1:
            yield f"{dataset}: its longest training goes through it {times:.1f} times"


def _machine(plan: Plan) -> MachineConfig:
    if (machine := plan.catalogue.scale.machine) is None:
        scale = plan.catalogue.project.scale
        place = plan.catalogue.folder / "scales" / f"{scale}.yaml"
        raise ConfigError(f"{place}: no `machine` to reckon with: add one, as paper.yaml has")
    return machine


def _lineage(plan: Plan, run: str) -> Iterator[str]:
    """Yield a run and those that it continues, as far as they are trained here."""
    name: str | None = run
    while name is not None and plan.jobs.trained(name):
        yield name
        name = plan.catalogue.parent(name)


def _cost(plan: Plan, run: str, seeds: int, machine: MachineConfig) -> TrainingCost:
    slice = plan.jobs.run(run)
    config, parameters = slice.training, count_parameters(slice.model)
    tokens = config.total_steps * config.tokens_per_step
    flops = training_flops(slice.model, config.seq_len) * tokens
    weights = _BYTES * parameters
    kept = 1 + len(config.kept_steps) + 3 * config.keep_checkpoints
    return TrainingCost(
        run=run,
        seeds=seeds,
        parameters=parameters,
        tokens=tokens,
        world=config.world,
        gpu_hours=flops / (machine.mfu * machine.peak_tflops * 1e12) / 3600,
        states_gib=states_per_process(slice.model, config, parameters) / _GIB,
        disk_gib=kept * weights / _GIB,
    )


def _too_large(cost: TrainingCost, machine: MachineConfig) -> str:
    if cost.states_gib <= machine.memory_gib:
        return ""
    return (
        f"  does not fit: {cost.states_gib:.0f} GiB of weights and moments on one GPU of "
        f"{machine.memory_gib:g}; raise training.world"
    )


def _short(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:,.0f}"
