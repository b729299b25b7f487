"""Cost estimates of evaluating pretrained models, from their published sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from difftransformer.config.run import PRETRAINED_BASE
from difftransformer.config.scale import MachineConfig
from difftransformer.models.sizes import count_parameters
from difftransformer.planning.plan import Plan

_BYTES = 2
"""Bytes per weight: all these models are published in 16 bits."""
_OPERATIONS = 2
"""FLOPs per parameter and token of a forward pass; attention to short prompts adds little."""


@dataclass(frozen=True)
class PublishedCost:
    """Estimated cost of evaluating a pretrained model.

    Attributes:
        run: Run of the model.
        parameters: Published number of parameters; None if it is not published. The other values
            are then not meaningful.
        tokens: Number of tokens that the model reads in all its evaluations.
        unknown: Suites whose number of tokens does not follow from their settings; not in
            ``tokens``.
        gpu_hours: GPU-hours for these tokens.
    """

    run: str
    parameters: float | None
    tokens: int
    unknown: tuple[str, ...]
    gpu_hours: float

    @property
    def download_gib(self) -> float:
        """Size of the model's files on the Hugging Face Hub in GiB."""
        return (self.parameters or 0.0) * _BYTES / 2**30


def published_costs(
    plan: Plan, artifacts: Sequence[str], machine: MachineConfig
) -> list[PublishedCost]:
    """Return the costs of evaluating the pretrained models that artifacts show."""
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
