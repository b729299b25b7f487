"""Memory of a training step beside weights and optimiser, by row and backend."""

from functools import partial

from models import backends, build, tokens, training_step
from runs import Answer, Questions, Setting, main

LENGTHS = (1024, 8192, 32768)
TOKENS = 32768


def questions(setting: Setting) -> Questions:
    """One for each row and length."""
    return {
        f"{row} T {T}": partial(measure, setting, row, T)
        for T in setting.sized(LENGTHS, (24,))
        for row in setting.sized(("transformer", "diff_v1", "diff_v2"), ("diff_v1",))
    }


def measure(setting: Setting, row: str, T: int) -> Answer:
    """Bytes of a step at their highest, over those that were there before it."""
    import torch

    from difftransformer.evaluation.timing import peak_memory

    batch, found = tokens(setting, T, TOKENS), {}
    for backend in backends(setting, row):
        model = build(setting, row, backend, T)
        step = training_step(setting, model, batch, compiled=not setting.tiny)
        try:
            step()  # the optimiser's state lives between steps
            model.zero_grad(set_to_none=True)
            found[backend] = peak_memory(step, torch.device(setting.device))
        except torch.OutOfMemoryError:
            found[backend] = None
    return {"peak_bytes": found, "batch": len(batch)}


if __name__ == "__main__":
    main("memory", __doc__, questions)
