"""Hide warnings that other packages log when they are imported and that do not apply here."""

import logging

_LOUD = ("torchao", "torch.utils._pytree")
"""They warn of missing kernels of torchao when transformers or peft imports it."""


def silence_loggers() -> None:
    """Let these loggers pass only errors, unless the user has set their level."""
    for name in _LOUD:
        other = logging.getLogger(name)
        if other.level == logging.NOTSET:
            other.setLevel(logging.ERROR)
