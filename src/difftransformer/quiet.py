"""Loggers of other packages that speak when they are imported, of what concerns nobody here."""

import logging

_LOUD = ("torchao", "torch.utils._pytree")
"""Warn, when transformers or peft imports torchao, of kernels that a machine has no use for."""


def hush() -> None:
    """Let only errors of them through, unless somebody has set their level."""
    for name in _LOUD:
        other = logging.getLogger(name)
        if other.level == logging.NOTSET:
            other.setLevel(logging.ERROR)
