"""Folders of pretrained models: a one-line error names what is missing."""

import json
from pathlib import Path

import pytest

from difftransformer.config.run import PretrainedModel
from difftransformer.errors import CheckpointError
from difftransformer.provenance.model_files import model_digest, model_files


def test_missing_files_of_a_model_folder_are_named(tmp_path: Path) -> None:
    model = PretrainedModel(name=str(tmp_path / "model"))
    with pytest.raises(CheckpointError, match="no such model folder"):
        model_files(model)
    (tmp_path / "model").mkdir()
    for name, complaint in (
        ("config.json", r"config\.json: no such file"),
        ("tokenizer.json", "has no tokenizer"),
        ("pytorch_model.bin", "has no weights"),
    ):
        with pytest.raises(CheckpointError, match=complaint):
            model_files(model)
        (tmp_path / "model" / name).write_text("{}")
    with pytest.raises(CheckpointError, match="set `safetensors: false`"):
        model_files(model)
    pickled = PretrainedModel(name=model.name, safetensors=False)
    assert {path.name for path in model_files(pickled)} == {
        "config.json", "tokenizer.json", "pytorch_model.bin"
    }  # fmt: skip
    before = model_digest(pickled)
    (tmp_path / "model" / "config.json").write_text("{ }")
    assert model_digest(pickled) != before


@pytest.mark.parametrize("pickles", [False, True])
def test_weight_files_are_the_ones_that_transformers_loads(tmp_path: Path, pickles: bool) -> None:
    """Repositories have the same weights in other formats, too."""
    single_file = "pytorch_model.bin" if pickles else "model.safetensors"
    shard = "b.bin" if pickles else "a.bin"
    names = ["consolidated.safetensors", "optimizer.bin", "pytorch_model.bin", shard, single_file]
    for name in ("config.json", "tokenizer.json", *names):
        (tmp_path / name).write_text("{}")
    model = PretrainedModel(name=str(tmp_path), safetensors=not pickles)

    def weights() -> set[str]:
        return {path.name for path in model_files(model)}.intersection(names)

    assert weights() == {single_file}
    (tmp_path / single_file).unlink()
    index = tmp_path / f"{single_file}.index.json"
    index.write_text(json.dumps({"weight_map": {"embedding": shard, "head": shard}}))
    assert weights() == {shard}
    (tmp_path / shard).unlink()
    with pytest.raises(CheckpointError, match=f"{shard}: no such file; {index.name} names it"):
        model_files(model)
    index.write_text("[]")
    with pytest.raises(CheckpointError, match="lists no weight files"):
        model_files(model)


def test_hub_names_and_folders_are_distinguished() -> None:
    assert PretrainedModel(name="openlm-research/open_llama_3b_v2").folder is None
    assert PretrainedModel(name="./mine").folder == Path("mine")
    assert PretrainedModel(name="models/of/mine").folder == Path("models/of/mine")
    hub = [PretrainedModel(name="a/b", revision=revision) for revision in (None, "main", "v2")]
    first, second, third = (model_digest(model) for model in hub)
    assert first == second != third
