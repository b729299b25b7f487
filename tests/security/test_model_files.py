"""Code and files that a pretrained model may name: its own, at the commit that is given."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from small_language_models import write_llama

from difftransformer.config.pretrained import PretrainedBase, sizes, source
from difftransformer.config.project import RunEntry
from difftransformer.config.run import PretrainedModel
from difftransformer.config.validation import validate
from difftransformer.convert.checkpoint import load_weights
from difftransformer.convert.pretrained import load_hf_causal_lm
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.provenance.model_files import model_digest, model_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MOVING = [None, "main", "v1.0", COMMIT[:39], COMMIT.upper(), f"{COMMIT}0", f"refs/pr/{COMMIT}"]


@pytest.mark.parametrize("revision", MOVING)
def test_remote_code_requires_a_commit(revision: str | None) -> None:
    settings = {"trust_remote_code": True, "revision": revision}
    message = "trust_remote_code needs the commit .*commits/main"
    for model in (PretrainedModel, PretrainedBase):
        with pytest.raises(ValidationError, match=message):
            model(name="owner/model", **settings)
        model(name="owner/model", **settings | {"revision": COMMIT})
        model(name="owner/model", revision=revision)
        model(name="./folder", trust_remote_code=True)
    entry = {"label": "L", "pretrained": "owner/model"}
    with pytest.raises(ConfigError, match=message) as refused:
        validate(RunEntry, entry | settings, "runs")
    assert "\n" not in str(refused.value)
    assert validate(RunEntry, entry | settings | {"revision": COMMIT}, "runs").pretrained_model()


CODE = "module.Config"
FOREIGN = [
    ("config.json", {"auto_map": {"AutoConfig": f"other/repo--{CODE}"}}),
    ("config.json", {"auto_map": {"AutoConfig": CODE, "AutoModelForCausalLM": f"a/b--{CODE}"}}),
    ("config.json", {"text_config": {"parts": [{"auto_map": {"AutoConfig": f"a/b--{CODE}"}}]}}),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, f"a/b--{CODE}"]}}),
    ("tokenizer_config.json", {"auto_map": [f"a/b--{CODE}", None]}),
]


def _with(folder: Path, file: str, more: dict[str, Any]) -> None:
    path = folder / file
    content = json.loads(path.read_bytes()) if path.is_file() else {}
    path.write_text(json.dumps(content | more))


@pytest.mark.parametrize(("file", "more"), FOREIGN)
def test_a_folder_takes_no_code_of_another_repository(
    tmp_path: Path, file: str, more: dict[str, Any]
) -> None:
    write_llama(tmp_path)
    model = PretrainedModel(name=str(tmp_path), trust_remote_code=True)
    _with(tmp_path, file, {"auto_map": {"AutoModel": CODE}})
    source(model)
    _with(tmp_path, file, more)
    for load in (source, sizes, load_hf_causal_lm):
        with pytest.raises(CheckpointError, match=f"its {file} loads code from another") as refused:
            load(model)
        assert "\n" not in str(refused.value)
    source(PretrainedModel(name=str(tmp_path)))  # which runs no code at all


def test_one_of_the_hub_takes_its_own_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = PretrainedModel(name="owner/model", revision=COMMIT, trust_remote_code=True)
    with pytest.raises(CheckpointError, match="cannot be loaded from the Hugging Face hub"):
        source(model)
    snapshot = tmp_path / "models--owner--model" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer_config.json").write_text("{}")
    _with(snapshot, "config.json", {"auto_map": {"AutoConfig": f"owner/model--{CODE}"}})
    assert source(model)[1] == {"revision": COMMIT, "trust_remote_code": True}
    for other in ("owner/model-2", "owner/mod", "other/model", "Owner/model"):
        _with(snapshot, "config.json", {"auto_map": {"AutoConfig": f"{other}--{CODE}"}})
        with pytest.raises(CheckpointError, match=f"code from another repository, {other}--"):
            source(model)


def test_all_code_of_a_folder_identifies_it(tmp_path: Path) -> None:
    write_llama(tmp_path)
    model = PretrainedModel(name=str(tmp_path), trust_remote_code=True)
    code = tmp_path / "custom_generate" / "generate.py"
    code.parent.mkdir()
    code.write_text("a = 1\n")
    before = model_digest(model)
    code.write_text("a = 2\n")
    assert code in model_files(model) and model_digest(model) != before


@pytest.mark.parametrize("named", ["../../x.safetensors", "/etc/x.safetensors", "a/../../x"])
@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_an_index_names_no_file_outside_its_folder(tmp_path: Path, named: str, kind: str) -> None:
    folder = tmp_path / "a" / "b"
    write_llama(folder)
    (folder / "model.safetensors").rename(tmp_path / "x.safetensors")
    index = folder / f"{kind}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"w": named}}))
    model = PretrainedModel(name=str(folder), safetensors=kind.endswith("safetensors"))
    for load in (source, sizes, load_hf_causal_lm, model_files):
        with pytest.raises(CheckpointError, match=f"{kind}.index.json: lists '") as refused:
            load(model)
        assert "outside its folder" in str(refused.value) and "\n" not in str(refused.value)


def test_an_index_of_our_own_names_none_either(tmp_path: Path) -> None:
    from small_transformers import with_gains

    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "../x.safetensors"}}))
    with pytest.raises(CheckpointError, match="outside its folder"):
        load_weights(
            with_gains({"variant": "softmax", "num_heads": 2, "head_dim": 8}, 0),
            tmp_path / "model.safetensors",
        )
