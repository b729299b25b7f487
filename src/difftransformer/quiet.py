"""Silence irrelevant warnings that other packages log when they are imported."""

import logging

_NOISY_LOGGERS = ("torchao", "torch.utils._pytree")
"""They warn about missing torchao kernels when transformers or peft imports torchao."""


def silence_loggers() -> None:
    """Set these loggers to ERROR unless the user has set their level."""
    for name in _NOISY_LOGGERS:
        other = logging.getLogger(name)
        if other.level == logging.NOTSET:
            other.setLevel(logging.ERROR)
