"""Training-step throughput and memory of our models beside those of transformers, in one run.

A step is forward, loss, backward, AdamW. The subjects take turns within every repeat, so that a
noisy machine troubles all of them alike. Each model computes its own idiomatic loss: transformers'
by ``labels=``, ours by the chunked cross entropy that the trainer uses. The attention
implementations of transformers (sdpa, eager) are both timed, and the faster one is the opponent.
Ours multiply by the library that is chosen on this processor; with ``--products both`` by each that
there is, forced, in the same rounds.

See benchmarks/README.md for how the comparison is kept fair, and --help for the options.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
TARGETS = {
    "diff_v1 / diffllama": 1.6,
    "transformer / llama": 1.25,
    "diff_v1 / transformer": 0.8,
    "diff_v2 / transformer_2h": 0.85,
}
OURS: dict[str, dict[str, Any]] = {
    "transformer": {"variant": "softmax"},
    "diff_v1": {"variant": "diff_v1"},
    "diff_v2": {"variant": "diff_v2"},
    # As many queries as V2 over as many key/value heads; its output projection is twice as wide.
    "transformer_2h": {"variant": "softmax", "num_heads_multiplier": 2},
}


@dataclass(frozen=True)
class Shape:
    """Sizes shared by all subjects; head_dim is the query/key width d of one softmax map.

    The Transformer has d_model / head_dim heads; DIFF has half as many, with values of 2 head_dim.
    """

    d_model: int
    num_layers: int
    head_dim: int
    ffn_dim: int
    seq_len: int
    batch_size: int
    vocab_size: int


SHAPES = {
    "medium": Shape(256, 4, 64, 688, seq_len=512, batch_size=4, vocab_size=4096),
    "medium_d32": Shape(256, 4, 32, 688, seq_len=512, batch_size=4, vocab_size=4096),
    "small": Shape(128, 4, 32, 344, seq_len=256, batch_size=16, vocab_size=2048),
    "small_2_layers": Shape(128, 2, 32, 344, seq_len=256, batch_size=16, vocab_size=2048),
}


@dataclass
class Subject:
    """One model under test: ``loss`` runs forward and loss on tokens [B, T+1].

    ``products`` is the library that multiplies its matrices, of two in turn; None: its own.
    """

    name: str
    parameters: int
    model: Any
    loss: Callable[[Any], Any]
    optimizer: Any
    products: str | None = None

    def step(self, tokens: Any) -> None:
        """Run one training step."""
        if self.products is not None:
            from difftransformer.models.linear import MATMUL

            os.environ[MATMUL] = self.products
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(tokens).backward()
        self.optimizer.step()


def subject(name: str, model: Any, loss: Callable[[Any], Any]) -> Subject:
    """Wrap a model with the optimizer that all subjects share."""
    import torch

    parameters = sum(parameter.numel() for parameter in model.train().parameters())
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    return Subject(name, parameters, model, loss, optimizer)


def ours(name: str, shape: Shape, way: str) -> Subject:
    """One of `OURS` with the trainer's loss, its products by one library."""
    from difftransformer.config.training import TrainingConfig
    from difftransformer.models.config import ModelConfig
    from difftransformer.models.kernels import choose_backend
    from difftransformer.models.loss import chunked_cross_entropy
    from difftransformer.models.transformer import Transformer

    config = ModelConfig(
        vocab_size=shape.vocab_size,
        d_model=shape.d_model,
        num_layers=shape.num_layers,
        ffn_dim=shape.ffn_dim,
        attention={**OURS[name], "head_dim": shape.head_dim},
        max_positions=shape.seq_len,
    )
    model = Transformer.build(config, choose_backend("auto", "cpu"), seed=0)
    chunk = TrainingConfig.model_fields["loss_chunk"].default

    def loss(tokens: Any) -> Any:
        hidden = model.hidden_states(tokens[:, :-1]).flatten(0, 1)
        return chunked_cross_entropy(hidden, model.output_weight, tokens[:, 1:].flatten(), chunk)

    return replace(subject(f"{name} ({way})", model, loss), products=way)


def ways(selection: str) -> list[str]:
    """Libraries that multiply our matrices: the one chosen here, or all that can."""
    from difftransformer.models.linear import matmul_backend, onednn_works

    if selection == "chosen":
        return [matmul_backend()]
    return ["onednn", "torch"] if onednn_works() else ["torch"]


def theirs(name: str, attention: str, shape: Shape) -> Subject:
    """LlamaForCausalLM or DiffLlamaForCausalLM of transformers with ``labels=``."""
    import torch
    import transformers

    kind = {"llama": "Llama", "diffllama": "DiffLlama"}[name]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.ffn_dim,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.d_model // shape.head_dim,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.seq_len,
        rms_norm_eps=1e-5,
        attn_implementation=attention,
        use_cache=False,
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)

    def loss(tokens: Any) -> Any:
        inputs = tokens[:, :-1]
        return model(input_ids=inputs, labels=inputs).loss

    return subject(f"{name} ({attention})", model, loss)


def check_sizes(subjects: dict[str, Subject], shape: Shape, way: str) -> None:
    """Refuse a comparison of unequal models; the headwise norm's gain is ours alone."""
    gains = shape.num_layers * 2 * shape.head_dim
    pairs = (("transformer", "llama (sdpa)", 0), ("diff_v1", "diffllama (sdpa)", gains))
    for mine, other, extra in pairs:
        difference = subjects[f"{mine} ({way})"].parameters - subjects[other].parameters
        if difference != extra:
            sys.exit(f"{mine} has {difference:+d} parameters against {other}, expected {extra:+d}")


def memory(tested: Subject, tokens: Any) -> dict[str, int]:
    """Bytes that live between steps, and the most a step allocates on top of them."""
    import torch

    from difftransformer.evaluation.timing import peak_memory

    tested.optimizer.zero_grad(set_to_none=True)
    tensors = [*tested.model.parameters(), *tested.model.buffers()]
    tensors += [
        v for s in tested.optimizer.state.values() for v in s.values() if hasattr(v, "numel")
    ]
    resident = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    step_bytes = peak_memory(lambda: tested.step(tokens), torch.device("cpu"))
    return {"resident_bytes": resident, "step_bytes": step_bytes}


def measure(
    shape: Shape, *, products: str, warmup: int, repeats: int, clock: str
) -> dict[str, Any]:
    """Time all subjects in turn; throughput in tokens per second of the clock, memory in bytes."""
    import torch

    from difftransformer.evaluation.timing import CLOCKS, time_interleaved

    libraries = ways(products)
    all_subjects = [ours(name, shape, way) for name in OURS for way in libraries]
    all_subjects += [theirs(n, a, shape) for n in ("llama", "diffllama") for a in ("sdpa", "eager")]
    subjects = {tested.name: tested for tested in all_subjects}
    for way in libraries:
        check_sizes(subjects, shape, way)
    generator = torch.Generator().manual_seed(0)
    size = (shape.batch_size, shape.seq_len + 1)
    tokens = torch.randint(shape.vocab_size, size, generator=generator)
    seconds = time_interleaved(
        {name: partial(tested.step, tokens) for name, tested in subjects.items()},
        warmup=warmup,
        repeats=repeats,
        clock=CLOCKS[clock],
    )
    per_step = shape.batch_size * shape.seq_len
    rows = {
        name: {
            "parameters": tested.parameters,
            "tokens_per_second": spread([per_step / taken for taken in seconds[name]]),
            **memory(tested, tokens),
        }
        for name, tested in subjects.items()
    }
    by_library = {way: ratios(seconds, way) for way in libraries}
    return {"shape": asdict(shape), "rows": rows, "ratios": by_library}


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles of two values or more."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high}


def ratios(seconds: dict[str, list[float]], way: str) -> dict[str, dict[str, Any]]:
    """Ratio of throughputs within each repeat, ours by one library, as median and quartiles."""

    def best(prefix: str) -> str:
        if prefix in OURS:
            return f"{prefix} ({way})"
        names = [name for name in seconds if name.split(" ")[0] == prefix]
        return min(names, key=lambda name: statistics.median(seconds[name]))

    table: dict[str, dict[str, Any]] = {}
    for pair, target in TARGETS.items():
        mine, other = (best(name) for name in pair.split(" / "))
        values = [b / a for a, b in zip(seconds[mine], seconds[other], strict=True)]
        table[pair] = {"against": other, "target": target, **spread(values)}
    return table


def markdown(result: dict[str, Any]) -> str:
    """Write the result of one shape as markdown tables."""
    shape = result["shape"]
    lines = [
        ", ".join(f"{key} {value}" for key, value in shape.items()),
        "",
        "| model | parameters | tokens/s, median (quartiles) | weights + optimizer MB | step MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in result["rows"].items():
        speed = row["tokens_per_second"]
        span = f"{speed['median']:,.0f} ({speed['q1']:,.0f} to {speed['q3']:,.0f})"
        memory = f"{row['resident_bytes'] / 1e6:.1f} | {row['step_bytes'] / 1e6:.1f}"
        lines.append(f"| {name} | {row['parameters']:,} | {span} | {memory} |")
    head = "| products | ratio | best opponent | median (quartiles) | target |"
    lines += ["", head, "|---|---|---|---:|---:|"]
    for way, table in result["ratios"].items():
        for pair, row in table.items():
            span = f"{row['median']:.2f} ({row['q1']:.2f} to {row['q3']:.2f})"
            lines.append(f"| {way} | {pair} | {row['against']} | {span} | {row['target']} |")
    return "\n".join(lines)


def surroundings(threads: int) -> dict[str, Any]:
    """Date, versions and hardware: the origin of the figures."""
    import torch
    import transformers

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.processor()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "transformers": transformers.__version__},
        "hardware": {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "threads": threads,
        "dtype": "float32",
    }


def main() -> None:
    """Parse the command line, measure, print, and record when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, nargs="+", default=["medium", "small"])
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--warmup", type=int, default=2, help="untimed steps of each subject")
    parser.add_argument("--repeats", type=int, default=9, help="timed steps of each subject")
    parser.add_argument(
        "--products",
        choices=("chosen", "both"),
        default="chosen",
        help="library of our products: the one chosen on this processor, or each in turn",
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="wall time, or CPU time of the process, for a machine that is busy otherwise",
    )
    parser.add_argument("--record", action="store_true", help="write JSON to benchmarks/records/")
    arguments = parser.parse_args()
    if arguments.repeats < 2:
        parser.error("--repeats must be at least 2: a median needs a spread")
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's C++ tells of every start
    import torch

    torch.set_num_threads(arguments.threads)
    options = {
        name: getattr(arguments, name) for name in ("products", "warmup", "repeats", "clock")
    }
    report = {**surroundings(arguments.threads), **options, "results": {}}
    for name in arguments.shape:
        result = measure(SHAPES[name], **options)
        report["results"][name] = result
        print(f"\n### {name}: {markdown(result)}\n", flush=True)
    if arguments.record:
        RECORDS.mkdir(exist_ok=True)
        path = RECORDS / f"training_step-{report['date'][:10]}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(f"recorded in {path}")


if __name__ == "__main__":
    main()
