"""The learning rate of each step: linear warm-up, then decay to a share of the peak."""

from math import cos, pi

from difftransformer.config.training import TrainingConfig


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Return the learning rate of step ``step``, counted from 1 to ``config.total_steps``.

    Step ``warmup_steps`` (or step 1 without warm-up) has the peak ``lr``; the last step has
    ``lr * min_lr_ratio``. A pure function of the step: the trainer keeps no scheduler state.
    """
    last = config.total_steps
    assert 1 <= step <= last, f"step {step} is outside 1..{last}"
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    peak = max(config.warmup_steps, 1)
    done = (step - peak) / (last - peak) if last > peak else 0.0
    remaining = 1.0 - done if config.decay == "linear" else 0.5 * (1.0 + cos(pi * done))
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * remaining)
