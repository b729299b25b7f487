"""Continued training: a trained model goes on with other text, its positions as they were.

Differential Transformer, appendix C: 20B tokens of mathematics, then 2B of distilled reasoning.
"""

from pathlib import Path
from typing import Unpack

from difftransformer.config.run import RunSlice
from difftransformer.training.continuation import continue_run
from difftransformer.training.job import Frame


def continue_training(slice: RunSlice, *, model: Path, **frame: Unpack[Frame]) -> None:
    """Train the model of ``slice`` from the weights of its parent; resume an earlier call.

    Args:
        slice: The resolved run; ``init_from`` names its parent.
        model: Folder of the parent's finished training with the same seed.
        **frame: See `difftransformer.training.job.Frame`; the dataset has the parent's tokenizer.

    Raises:
        UserError: one readable line; see `difftransformer.training.continuation.continue_run`.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75).
    """
    continue_run("continue_training", slice, model, frame)
