"""Cost estimates of evaluating pretrained models, by their stated sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from difftransformer.config.run import PRETRAINED_BASE
from difftransformer.config.scale import MachineConfig
from difftransformer.models.sizes import count_parameters
from difftransformer.planning.plan import Plan

_BYTES = 2
"""Bytes per weight: all these models are published in 16 bits."""
_OPERATIONS = 2
"""For each parameter and token of a forward pass; maps of short prompts add little."""


@dataclass(frozen=True)
class PublishedCost:
    """Estimated cost of a pretrained model.

    Attributes:
        run: Its row.
        parameters: Stated; None: nobody says, and nothing follows.
        tokens: That it reads in all its evaluations.
        unknown: Suites whose settings do not say how many.
        gpu_hours: Of these tokens.
    """

    run: str
    parameters: float | None
    tokens: int
    unknown: tuple[str, ...]
    gpu_hours: float

    @property
    def download_gib(self) -> float:
        """Size of its files on the hub."""
        return (self.parameters or 0.0) * _BYTES / 2**30


def published_costs(
    plan: Plan, artifacts: Sequence[str], machine: MachineConfig
) -> list[PublishedCost]:
    """Return the costs of the pretrained models that artifacts show."""
    suites: dict[str, dict[str, None]] = {}
    for artifact in artifacts:
        for suite, run in plan.artifacts.evaluations(artifact):
            if not plan.jobs.trained(run):
                suites.setdefault(run, {})[suite] = None
    return [_cost(plan, run, list(names), machine) for run, names in suites.items()]


def _cost(plan: Plan, run: str, suites: Sequence[str], machine: MachineConfig) -> PublishedCost:
    planned = {suite: plan.resolver.suite(suite).planned_tokens for suite in suites}
    tokens, parameters = (
        sum(tokens_read or 0 for tokens_read in planned.values()),
        _parameters(plan, run),
    )
    flops = _OPERATIONS * (parameters or 0.0) * tokens
    return PublishedCost(
        run=run,
        parameters=parameters,
        tokens=tokens,
        unknown=tuple(suite for suite, tokens_read in planned.items() if tokens_read is None),
        gpu_hours=flops / machine.speed / 3600,
    )


def _parameters(plan: Plan, run: str) -> float | None:
    base = plan.resolver.project.pretrained
    if run == PRETRAINED_BASE and base is not None:
        return count_parameters(base.planned(f"{plan.resolver.folder / 'config.yaml'}: pretrained"))
    return plan.resolver.runs[run].parameters
