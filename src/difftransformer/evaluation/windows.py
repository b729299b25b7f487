"""Windows of the validation split as a model's inputs."""

from collections.abc import Iterator

from torch import Tensor

from difftransformer.config.suites.windows import WindowSuite
from difftransformer.data.loader import sequential_windows
from difftransformer.errors import ConfigError
from difftransformer.evaluation.subject import Subject


def validation_inputs(suite: WindowSuite, subject: Subject) -> Iterator[Tensor]:
    """Return the suite's windows in batches, int64 [B, T]; T = seq_len.

    Raises:
        ConfigError: windows longer than the model's context.
        DataError: the validation split is missing or too short.
    """
    if suite.seq_len > subject.scorer.max_positions:
        raise ConfigError(
            f"{suite.kind}.seq_len {suite.seq_len} is longer than the model's context: at most its "
            f"max_positions {subject.scorer.max_positions}"
        )
    windows = sequential_windows(
        subject.dataset,
        "validation",
        seq_len=suite.seq_len,
        batch_size=suite.batch_size,
        max_tokens=suite.max_tokens,
    )
    return (batch[:, :-1] for batch in windows)
