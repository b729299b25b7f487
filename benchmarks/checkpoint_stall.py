"""How long a training stands still for a checkpoint: written at once, and from a thread.

The state is that of a real model (weights and both moments); between checkpoints the model trains.
What is timed is the call that saves, and the steps that run while the thread writes beside steps
that run alone. With ``--world-size 2`` two processes write their shards.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from difftransformer.config.training import TrainingConfig
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer
from difftransformer.training.checkpoint import CheckpointStore, TrainState
from difftransformer.training.optimizer import AdamW
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.rendezvous import init_process_group

CPU = torch.device("cpu")


def main() -> None:
    """Print the times as JSON, in milliseconds; with several processes those of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d-model", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--world-size", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.world_size > 1 and "WORLD_SIZE" not in os.environ:
        words = ["--standalone", f"--nproc-per-node={arguments.world_size}", *sys.argv]
        sys.exit(subprocess.call([sys.executable, "-m", "torch.distributed.run", *words]))
    torch.set_num_threads(1)
    with init_process_group(arguments.world_size, CPU) as group:
        folders = [TemporaryDirectory(dir=".") if group.is_rank0 else None]
        folder = Path(group.broadcast_object(folders[0] and folders[0].name))
        report = measure(arguments, group, folder)
        if group.is_rank0:
            print(json.dumps(report, indent=1))


def measure(arguments: argparse.Namespace, group: ProcessGroup, folder: Path) -> dict[str, float]:
    """Return medians."""
    steps, tensors = training(arguments, group)
    alone = [timed(lambda: next(steps)) for _ in range(2 * arguments.repeats)][arguments.repeats :]
    blocking, async_, beside = [], [], []
    with CheckpointStore(folder, keep=2, identity="benchmark", group=group) as store:
        for number in range(1, 2 * arguments.repeats + 1):
            train_state = TrainState(number, tensors, {"history": []})
            if number <= arguments.repeats:
                blocking.append(timed(lambda state=train_state: store.save(state)))
                next(steps)
                continue
            async_.append(timed(lambda state=train_state: store.save(state, async_=True)))
            # Each process as many: their steps are sums of all.
            beside += [timed(lambda: next(steps)) for _ in range(3)]
            store.wait()
    megabytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) / 1e6
    medians = {"at_once": blocking, "from_a_thread": async_, "step_alone": alone, "step": beside}
    return {"megabytes": round(megabytes)} | {
        name: round(1000 * statistics.median(times), 1) for name, times in medians.items()
    }


def training(
    arguments: argparse.Namespace, group: ProcessGroup
) -> tuple[Iterator[None], dict[str, torch.Tensor]]:
    """Return endless steps of a training, and the tensors of its checkpoint."""
    config = ModelConfig(
        vocab_size=4096,
        d_model=arguments.d_model,
        num_layers=arguments.layers,
        ffn_dim=3 * arguments.d_model,
        max_positions=128,
        attention={"variant": "diff_v1", "head_dim": 64},
    )
    model = group.shard_model(
        lambda: Transformer(config),
        lambda model, name, module: model.init_module(name, module, 0),
        CPU,
        "fp32",
    )
    settings = {"steps": 10, "seq_len": 128, "batch_size": 2, "lr": 1e-3, "warmup_steps": 1}
    optimizer = AdamW(model.named_parameters(), TrainingConfig.model_validate(settings))
    loss = group.wrap_loss(model, lambda batch: model(batch).float().logsumexp(-1).mean())

    def steps() -> Iterator[None]:
        while True:
            torch.autograd.backward(loss(torch.zeros(2, 128, dtype=torch.long)))
            optimizer.step(1e-4)
            yield

    return steps(), dict(model.named_parameters()) | optimizer.tensors()


def timed(act: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
