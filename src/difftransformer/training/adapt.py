"""Adaptation (fine-tuning): train a finished model by a method, then merge the adapter.

The parent is a finished run, converted to transformers' Llama, or a pretrained model. The result
has the parent's class and sizes, so that all suites can evaluate it; ``adapter.safetensors`` is
next to it. See `training.methods`.
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Unpack

import peft  # noqa: F401 - most methods are its: here, the process that jobs are forked from has it
import torch
from torch import Tensor

from difftransformer.config.run import RunConfig
from difftransformer.convert.hf import BACKENDS
from difftransformer.convert.llama import from_llama, to_llama
from difftransformer.data.loader import BatchLoader
from difftransformer.data.packed import PackedDataset
from difftransformer.data.tokenizer import require_same_tokenizer_as_model
from difftransformer.errors import BackendError, ConfigError
from difftransformer.models.kernels import choose_backend
from difftransformer.models.language_model import HFCausalLM, LanguageModel
from difftransformer.models.transformer import Transformer
from difftransformer.training.memory import require_memory
from difftransformer.training.method import Adapter, Task
from difftransformer.training.methods import configure, prepare
from difftransformer.training.outputs import Metrics
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.run import JobArguments, TrainSetup, open_weights, train_run


def adapt(run_config: RunConfig, *, model: Path | None = None, **job: Unpack[JobArguments]) -> None:
    """Fine-tune the parent model of a run, or resume from the latest checkpoint; write the outputs.

    Args:
        run_config: The resolved config, with ``adapt`` and ``init_from`` or ``pretrained``.
        model: Folder of the parent's finished training with the same seed.
        **job: `run.JobArguments`; the dataset must have the parent's tokenizer.

    Raises:
        ConfigError: The run has no method or parent, or its settings cannot be used.
        CheckpointError: ``model`` has no finished training, or one of another run, seed or
            tokenizer, or its model is not a plain Llama.
        BackendError: Transformers models do not support the attention implementation.
        UserError, Interrupted: As in `pretrain`.
    """
    if run_config.adapt is None:
        raise ConfigError(f"run {run_config.run} has no `adapt`: use `pretrain`, or name a method")
    if model is None and run_config.pretrained is None:
        raise ConfigError(
            f"run {run_config.run} adapts {run_config.init_from}: give that training's result"
        )
    settings = configure(run_config.adapt, f"run {run_config.run}: adapt")

    def make_setup(dataset: PackedDataset, device: torch.device, group: ProcessGroup) -> TrainSetup:
        require_memory(run_config, device)
        causal = _open_parent(run_config, model, dataset, device)

        def batches(sequences: int) -> Iterable[Tensor]:
            return first_batches(dataset, run_config, sequences, job["seed"])

        method = prepare(causal, settings, Task(run_config.training, job["seed"], batches))

        def finish() -> tuple[LanguageModel, Metrics]:
            sizes: Metrics = {
                "trained_parameters": method.trained_parameters,
                "extra_parameters": method.extra_parameters,
            }
            sizes |= method.extra_metrics()
            method.merge()
            return causal if run_config.pretrained else _to_transformer(run_config, causal), sizes

        def adapter() -> Adapter:
            return method.adapter() or Adapter({}, {})

        return TrainSetup(causal, method, causal.inner.config._attn_implementation, finish, adapter)

    train_run("adapt", run_config, model, make_setup, job)


def first_batches(
    dataset: PackedDataset, run_config: RunConfig, sequences: int, seed: int
) -> Iterable[Tensor]:
    """Return batches of token ids [B, T] from the start of a run's shuffled training text.

    They have at least ``sequences`` sequences in all.
    """
    size = min(run_config.training.micro_batch, sequences)
    loader = BatchLoader(
        dataset, "train", batch_size=size, seq_len=run_config.training.seq_len, seed=seed
    )
    number = -(-sequences // size)
    return islice(iter(lambda: loader.next_batch()[:, :-1], None), number)


def _open_parent(
    run_config: RunConfig, folder: Path | None, dataset: PackedDataset, device: torch.device
) -> HFCausalLM:
    """Return the parent as a transformers model, with the max_positions of this run."""
    config = run_config.training
    backend = choose_backend(config.backend, device.type, config.precision)
    names = {ours: name for name, ours in BACKENDS.items()}
    if backend not in names and config.backend != "auto":
        raise BackendError(
            f"training.backend is {backend}, which models of transformers lack: use one of "
            f"{', '.join(names)}, or auto"
        )
    causal = _load_parent(run_config, folder, dataset)
    causal.inner.to(device)
    causal.inner.set_attn_implementation(names.get(backend, "sdpa"))
    causal.set_activation_checkpointing(config.activation_checkpointing == "layer")
    return causal


def _load_parent(run_config: RunConfig, folder: Path | None, dataset: PackedDataset) -> HFCausalLM:
    if run_config.pretrained is None:
        assert folder is not None, run_config.run
        return HFCausalLM(
            to_llama(open_weights(run_config, folder, Transformer(run_config.model)), "llama")
        )
    from difftransformer.convert.pretrained import load_hf_causal_lm, require_sizes

    causal = load_hf_causal_lm(run_config.pretrained)
    require_sizes(causal, run_config.model, run_config.pretrained.name)
    require_same_tokenizer_as_model(causal.tokenizer, dataset, run_config.pretrained.name)
    return causal


def _to_transformer(run_config: RunConfig, model: HFCausalLM) -> Transformer:
    """Convert the merged model back to a `Transformer` with the settings of its run."""
    device = model.output_weight.device
    transformer = Transformer(run_config.model)
    transformer.load_state_dict(from_llama(model.inner.cpu()).state_dict())
    return transformer.to(device).eval()
