"""Adaptation: a trained model is changed by a method and folded again.

The model is a finished run, opened as a plain Llama, or one from elsewhere as it is. What comes out
has the parent's class and sizes, so that the suites measure it; beside it lies
``adapter.safetensors``, what the method has besides. See `training.methods`.
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
from difftransformer.training.run import Frame, Start, open_weights, train_run
from difftransformer.training.team import Team


def adapt(slice: RunConfig, *, model: Path | None = None, **frame: Unpack[Frame]) -> None:
    """Adapt the run that ``slice`` continues, or go on from the newest whole checkpoint; publish.

    Args:
        slice: The resolved run; ``adapt`` says how, ``init_from`` what.
        model: Folder of that run's finished training with the same seed.
        **frame: See `Frame`; the dataset has the parent's tokenizer.

    Raises:
        ConfigError: The run names no method or no parent, or its settings cannot be used.
        CheckpointError: ``model`` holds no finished training, that of another run or seed, weights
            with another tokenizer, or a model that is no plain Llama.
        BackendError: An attention implementation that models of transformers do not have.
        UserError, Interrupted: As `pretrain`.
    """
    if slice.adapt is None:
        raise ConfigError(f"run {slice.run} has no `adapt`: use `pretrain`, or name a method")
    if model is None and slice.pretrained is None:
        raise ConfigError(f"run {slice.run} adapts {slice.init_from}: give that training's result")
    settings = configure(slice.adapt, f"run {slice.run}: adapt")

    def start(dataset: PackedDataset, device: torch.device, team: Team) -> Start:
        require_memory(slice, device)
        causal = _opened(slice, model, dataset, device)

        def batches(sequences: int) -> Iterable[Tensor]:
            return first_batches(dataset, slice, sequences, frame["seed"])

        method = prepare(causal, settings, Task(slice.training, frame["seed"], batches))

        def finish() -> tuple[LanguageModel, Metrics]:
            sizes: Metrics = {
                "trained_parameters": method.trained_parameters,
                "extra_parameters": method.extra_parameters,
            }
            sizes |= method.readings()
            method.fold()
            return causal if slice.pretrained else _closed(slice, causal), sizes

        def adapter() -> Adapter:
            return method.adapter() or Adapter({}, {})

        return Start(causal, method, causal.inner.config._attn_implementation, finish, adapter)

    train_run("adapt", slice, model, start, frame)


def first_batches(
    dataset: PackedDataset, slice: RunConfig, sequences: int, seed: int
) -> Iterable[Tensor]:
    """Return the first sequences of a run's training text without their last target, [B, T]."""
    size = min(slice.training.micro_batch, sequences)
    loader = BatchLoader(
        dataset, "train", batch_size=size, seq_len=slice.training.seq_len, seed=seed
    )
    number = -(-sequences // size)
    return islice(iter(lambda: loader.next_batch()[:, :-1], None), number)


def _opened(
    slice: RunConfig, folder: Path | None, dataset: PackedDataset, device: torch.device
) -> HFCausalLM:
    """The parent: one of ours as transformers' Llama, with the positions of this run."""
    config = slice.training
    backend = choose_backend(config.backend, device.type, config.precision)
    theirs = {ours: name for name, ours in BACKENDS.items()}
    if backend not in theirs and config.backend != "auto":
        raise BackendError(
            f"training.backend is {backend}, which models of transformers do not have: take one of "
            f"{', '.join(theirs)}, or auto"
        )
    causal = _parent(slice, folder, dataset)
    causal.inner.to(device)
    causal.inner.set_attn_implementation(theirs.get(backend, "sdpa"))
    causal.set_activation_checkpointing(config.activation_checkpointing == "layer")
    return causal


def _parent(slice: RunConfig, folder: Path | None, dataset: PackedDataset) -> HFCausalLM:
    if slice.pretrained is None:
        assert folder is not None, slice.run
        return HFCausalLM(to_llama(open_weights(slice, folder, Transformer(slice.model)), "llama"))
    from difftransformer.convert.pretrained import load_hf_causal_lm, require_sizes

    causal = load_hf_causal_lm(slice.pretrained)
    require_sizes(causal, slice.model, slice.pretrained.name)
    require_same_tokenizer_as_model(causal.tokenizer, dataset, slice.pretrained.name)
    return causal


def _closed(slice: RunConfig, model: HFCausalLM) -> Transformer:
    """Return the folded model as ours, with the settings of its run."""
    device = model.output_weight.device
    ours = Transformer(slice.model)
    ours.load_state_dict(from_llama(model.inner.cpu()).state_dict())
    return ours.to(device).eval()
