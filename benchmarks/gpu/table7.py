"""Table 7 as people would run it: training compiled, prefill, and peak memory, of all rows.

At 1K to 64K positions, by every backend; the share of the peak counts causal pairs as causal.
"""

import statistics
from functools import partial
from itertools import product
from typing import Any

from models import ROWS, backends, build, config, precision, share_of_peak, tokens, training_step
from runs import Answer, Questions, Setting, compared, main, timed

LENGTHS = (1024, 4096, 16384, 65536)
TOKENS = 16384


def questions(setting: Setting) -> Questions:
    """One for each length and row, the shortest and the most asked for first."""
    lengths, rows = setting.sized((LENGTHS, tuple(ROWS)), ((24,), ("diff_v1", "gpt_oss_sink")))
    return {f"{row} T {T}": partial(measure, setting, row, T) for T, row in product(lengths, rows)}


def measure(setting: Setting, row: str, T: int) -> Answer:
    """Training and prefill by each backend, which take turns, and the peak of a training step."""
    import torch

    from difftransformer.evaluation.timing import peak_memory

    batch = tokens(setting, T, TOKENS)
    models = {backend: build(setting, row, backend, T) for backend in backends(setting, row)}
    found: Answer = {"batch": len(batch)}
    steps = {
        "training": {
            backend: training_step(setting, model, batch, compiled=not setting.tiny)
            for backend, model in models.items()
        },
        "prefill": {
            backend: partial(prefill, setting, model, batch) for backend, model in models.items()
        },
    }
    for mode, by_backend in steps.items():
        seconds = timed(by_backend, setting)
        speeds = {
            name: batch[:, 1:].numel() / statistics.median(values)
            for name, values in seconds.items()
        }
        found[mode] = {**compared(seconds, "sdpa"), "tokens_per_second": speeds}
        if mode == "training":
            found["peak_bytes"] = {
                name: peak_memory(by_backend[name], torch.device(setting.device))
                for name in seconds
            }
            found["share_of_peak"] = {
                name: share_of_peak(setting, config(setting, row, T), T, one)
                for name, one in speeds.items()
            }
    return found


def prefill(setting: Setting, model: Any, batch: Any) -> None:
    """Read a prompt."""
    import torch

    from difftransformer.models.device import autocast

    with torch.no_grad(), autocast(torch.device(setting.device), precision(setting)):
        model.hidden_states(batch[:, :-1])


if __name__ == "__main__":
    main("table7", __doc__, questions)
