"""Long-context extension: a trained model goes on at a longer length with slower rotary positions.

Differential Transformer, section 3.3: the 3B models continue for 1.5B tokens at 64K with theta
640000 on a corpus up-sampled by sequence length.
"""

from pathlib import Path
from typing import Unpack

from difftransformer.config.run import RunSlice
from difftransformer.training.continuation import continue_run
from difftransformer.training.job import Frame


def extend_context(slice: RunSlice, *, model: Path, **frame: Unpack[Frame]) -> None:
    """Train the model of ``slice`` from the weights of its parent; resume an earlier call.

    Args:
        slice: The resolved run; ``init_from`` names its parent.
        model: Folder of the parent's finished training with the same seed.
        **frame: See `difftransformer.training.job.Frame`; the dataset has the parent's tokenizer.

    Raises:
        UserError: one readable line; see `difftransformer.training.continuation.continue_run`.
        Interrupted: stopped by SIGTERM or SIGINT after writing a checkpoint (exit status 75).
    """
    continue_run("extend_context", slice, model, frame)
