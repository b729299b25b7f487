"""What a training step with Dex costs beside one of the same matrices without it.

Steps of both take turns within every repeat, on the CPU by its own clock, so that other work on the
machine troubles both alike. A step is forward, chunked loss, backward, clipping and AdamW, as the
trainer does it. See --help.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from difftransformer.config.run import RunConfig
from difftransformer.evaluation.timing import CLOCKS, time_interleaved
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Method, Task
from difftransformer.training.methods import configure, prepare
from difftransformer.training.objective import Objective

RECORDS = Path(__file__).parent / "records"
TARGET = 1.05
SHAPES = {  # d_model, layers, head_dim, ffn_dim, positions, sequences, vocabulary
    "tiny": (128, 2, 16, 384, 128, 16, 1024),
    "medium": (512, 4, 64, 1376, 256, 8, 4096),
}


def main() -> None:
    """Time, print and, if asked, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=30, help="pairs of steps")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ratios_by_shape = {name: compare(name, arguments.repeats) for name in arguments.shape}
    for name, ratios in ratios_by_shape.items():
        for what, (low, middle, high) in ratios.items():
            print(f"{name}: {what} / kvo {middle:.3f} ({low:.3f} to {high:.3f})")
    if arguments.record:
        now = datetime.now(UTC)
        content = {
            "command": " ".join(["python", *sys.argv]), "date": now.isoformat(timespec="seconds"),
            "torch": torch.__version__, "repeats": arguments.repeats, "ratios": ratios_by_shape,
        }  # fmt: skip
        path = RECORDS / f"dex_cost-{now:%Y-%m-%d}.json"
        path.write_text(json.dumps(content, indent=1) + "\n")
        print(path)


def compare(shape: str, repeats: int) -> dict[str, tuple[float, float, float]]:
    """Quartiles of the ratio of a step's CPU time to the control's."""
    steps = {name: stepper(shape, name) for name in ("kvo", "dex", "dex unfolded")}
    times = time_interleaved(steps, warmup=3, repeats=repeats, clock=CLOCKS["cpu"])
    ratios = {
        name: [a / b for a, b in zip(times[name], times["kvo"], strict=True)]
        for name in steps
        if name != "kvo"
    }
    return {name: tuple(statistics.quantiles(values, n=4)) for name, values in ratios.items()}


def stepper(shape: str, name: str) -> Callable[[], None]:
    """Return a training step of a Llama of a shape that a method adapts."""
    d_model, layers, head_dim, ffn_dim, positions, sequences, vocabulary = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=d_model, intermediate_size=ffn_dim,
        num_hidden_layers=layers, num_attention_heads=d_model // head_dim, head_dim=head_dim,
        max_position_embeddings=positions,
    )  # fmt: skip
    model = HFCausalLM(LlamaForCausalLM(config))
    run = slice_of(shape)
    tokens = torch.randint(vocabulary, (sequences, positions + 1))
    task = Task(run.training, 0, lambda number: [tokens[:number, :-1]])
    method: Method = prepare(model, configure({"method": name.split(maxsplit=1)[0]}), task)
    for module in model.modules():
        for settings in getattr(module, "configs", {}).values():
            settings.unfolded = name.endswith("unfolded")
    objective = Objective(
        seq_len=positions, chunk=1024, answers=None,
        device=torch.device("cpu"),
    )  # fmt: skip

    def step() -> None:
        loss = objective.loss(model.hidden_states, model.output_weight, tokens)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(method.optimizer.parameters, 1.0)
        method.step(1e-4)

    return step


def slice_of(shape: str) -> RunConfig:
    """A run of these sizes, for its training settings."""
    d_model, layers, head_dim, ffn_dim, positions, sequences, vocabulary = SHAPES[shape]
    raw: dict[str, Any] = {
        "scale": "benchmark", "run": shape, "dataset": "random",
        "model": {
            "vocab_size": vocabulary, "d_model": d_model, "num_layers": layers, "ffn_dim": ffn_dim,
            "max_positions": positions, "attention": {"variant": "softmax", "head_dim": head_dim},
        },
        "training": {
            "steps": 1000, "seq_len": positions, "batch_size": sequences, "lr": 1e-4,
            "warmup_steps": 1,
        },
    }  # fmt: skip
    return RunConfig.model_validate(raw)


if __name__ == "__main__":
    main()
