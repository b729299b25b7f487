"""Saving and loading models and their configs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from difftransformer.convert.checkpoint import CONFIG, WEIGHTS, load_model, read_config, save_model
from difftransformer.errors import CheckpointError
from difftransformer.models.attention.registry import variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer


def saved(folder: Path, variant: str = "diff_v1", tied: bool = False) -> Transformer:
    config = ModelConfig(
        vocab_size=31,
        d_model=16,
        num_layers=2,
        ffn_dim=24,
        attention={"variant": variant, "head_dim": 4},
        max_positions=32,
        tie_embeddings=tied,
    )
    model = Transformer.build(config, "sdpa", seed=1)
    save_model(folder, model, model.config)
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("variant", variants())
def test_a_loaded_model_is_the_saved_one(tmp_path: Path, variant: str, tied: bool) -> None:
    model = saved(tmp_path / "new" / "folder", variant, tied)
    loaded = load_model(tmp_path / "new" / "folder", "eager")
    assert loaded.config == model.config
    assert (loaded.backend, loaded.training) == ("eager", False)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    saved(tmp_path / "a")
    saved(tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [CONFIG, WEIGHTS, "modeling_difftransformer.py"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def without(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        del tensors[name]
        save_file(tensors, folder / WEIGHTS)

    return damage


def with_tensor(name: str, *shape: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        save_file(load_file(folder / WEIGHTS) | {name: torch.zeros(shape)}, folder / WEIGHTS)

    return damage


def truncated(name: str, share: float) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * share)])

    return damage


def misspelt(folder: Path) -> None:
    content = json.loads((folder / CONFIG).read_text())
    content["model"]["d_modell"] = content["model"].pop("d_model")
    (folder / CONFIG).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / WEIGHTS).unlink(), r"model\.safetensors: no such file"),
        (lambda folder: (folder / CONFIG).unlink(), r"config\.json: no such file"),
        (truncated(WEIGHTS, 0.7), r"model\.safetensors: truncated or damaged"),
        (truncated(WEIGHTS, 0.0), r"model\.safetensors: truncated or damaged"),
        (truncated(CONFIG, 0.5), r"config\.json: not readable as JSON"),
        (misspelt, r"config\.json: model: d_modell: unknown key; did you mean 'd_model'"),
        (
            lambda folder: (folder / CONFIG).write_text('{"model_type": "llama"}'),
            r"config\.json: is a llama: .* transformers",
        ),
        (
            lambda folder: (folder / CONFIG).write_text('{"d_model": 16}'),
            r"config\.json: no settings under `model`",
        ),
        (without("lm_head.weight"), r"tensor lm_head\.weight is missing"),
        (with_tensor("extra", 1), r"tensor extra is unknown to the model"),
        (with_tensor("norm.weight", 7), r"tensor norm\.weight has shape \[7\], not \[16\]"),
    ],
)
def test_a_damaged_folder_is_a_one_line_error(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    saved(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_the_config_can_be_read_alone(tmp_path: Path) -> None:
    saved(tmp_path)
    assert read_config(tmp_path).attention.variant == "diff_v1"
    content = json.loads((tmp_path / CONFIG).read_text())
    assert content["auto_map"]["AutoConfig"] == "modeling_difftransformer.DiffTransformerConfig"


def test_transformers_is_not_imported_by_the_models_themselves() -> None:
    code = (
        "import sys, difftransformer.convert.checkpoint, difftransformer.convert.export\n"
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
