"""Pickled weights of a pretrained model: refused, or read without running what they hold."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_language_models import suite, write_llama

from difftransformer.config.run import PretrainedModel
from difftransformer.errors import CheckpointError
from difftransformer.evaluation.context import PretrainedContext
from difftransformer.evaluation.harness import wrap_for_lm_eval
from difftransformer.provenance.model_files import model_files


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def pickled(folder: Path, **more: Any) -> PretrainedContext:
    """A Llama whose weights are pickled, with something beside them."""
    from transformers import LlamaForCausalLM

    write_llama(folder)
    weights = LlamaForCausalLM.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save({**weights, **more}, folder / "pytorch_model.bin")
    model = PretrainedModel(name=str(folder), safetensors=False)
    return PretrainedContext(model, torch.device("cpu"), details=folder, state=folder)


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    evil = tmp_path / "it ran"
    context = pickled(tmp_path / "model", payload=Payload(evil))
    with pytest.raises(CheckpointError, match="cannot be loaded") as caught:
        wrap_for_lm_eval(suite(), context)
    assert not evil.exists()
    assert "\n" not in str(caught.value)
    torch.load(tmp_path / "model" / "pytorch_model.bin", weights_only=False)
    assert evil.exists(), "the file is harmless, so nothing was shown"


def test_tensors_alone_are_taken_where_it_is_asked_for(tmp_path: Path) -> None:
    context = pickled(tmp_path / "model")
    assert wrap_for_lm_eval(suite(), context).model.num_parameters() > 0
    with pytest.raises(CheckpointError, match="set `safetensors: false`"):
        model_files(PretrainedModel(name=str(tmp_path / "model")))
