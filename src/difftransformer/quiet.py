"""Hiding of irrelevant warnings that other packages log when they are imported."""

import logging

_NOISY_LOGGERS = ("torchao", "torch.utils._pytree")
"""Loggers that warn about missing torchao kernels when transformers or peft imports torchao."""


def silence_loggers() -> None:
    """Set the loggers in `_NOISY_LOGGERS` to level ERROR, unless the user has set a level."""
    for name in _NOISY_LOGGERS:
        other = logging.getLogger(name)
        if other.level == logging.NOTSET:
            other.setLevel(logging.ERROR)
