"""A published run: its model card, loading it, and pushing it to the hub."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
import yaml
from preloaded import python
from safetensors.torch import load_file
from small_evaluation import republish
from small_hub import serving
from small_language_models import write_llama, write_training
from small_workflow import Checkout

from difftransformer import DiffTransformerForCausalLM
from difftransformer.convert.checkpoint import load_model, save_weights
from difftransformer.convert.export import export_model
from difftransformer.errors import UserError
from difftransformer.provenance.checksums import read_checked
from difftransformer.provenance.checksums import write_checked as publish_result
from difftransformer.publishing import hub
from difftransformer.publishing.card import model_card
from difftransformer.publishing.publish import forget_folders, is_published, publish

TOKEN = "hf_secret-of-the-test"


@pytest.fixture
def run(finished: Checkout) -> Path:
    return finished.folder / "results/smoke/runs/diff/0"


def online() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name != "HF_HUB_OFFLINE"}


def pushed(
    run: Path, out: Path, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    # Large files go by LFS: the hub's newer storage is a service of its own.
    settings = {**online(), "HF_TOKEN": "", "HF_HUB_DISABLE_XET": "1", **environment}
    return python("-m", "difftransformer", "publish", str(run), str(out), *words, env=settings)


def test_the_card_describes_the_published_files(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "out", license="cc-by-4.0")
    text = (tmp_path / "out" / "README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "cc-by-4.0" and "diff_v1" in head["tags"]
    training = json.loads((run / "training.json").read_text())
    assert training["job_id"] in text and training["provenance"]["git_commit"] in text
    assert f"{training['metrics']['validation_loss']:.4f}" in text
    manifest = json.loads((run.parents[2] / "data/stdlib_text/manifest.json").read_text())
    for name in manifest["sources"]:
        assert name.replace("_", r"\_") in text
    for words in ("PSF", "validation\\_slices", "V1.loss", "Intended use", "arXiv 2410.05258"):
        assert words in text, words
    assert "<script" in text and not re.search(r"(?<!\\)<script", text)  # a license has one
    assert "hostile.jsonl" in text and str(tmp_path.parents[1]) not in text
    wanted = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert wanted <= {path.name for path in (tmp_path / "out").iterdir()}


def test_a_name_in_the_card_is_code_as_it_is(tmp_path: Path) -> None:
    run, _ = write_training(tmp_path)
    republish(run, settings={"dataset": "local_files"})
    assert "Dataset `local_files`;" in model_card(run, None, "m", own_code=True)
    republish(run, settings={"dataset": "`<script>"})
    assert "Dataset `` `<script> ``;" in model_card(run, None, "m", own_code=True)


def test_the_card_lists_a_custom_suite(tmp_path: Path) -> None:
    run, _ = write_training(tmp_path)
    training = json.loads(read_checked(run / "training.json"))
    folder = tmp_path / f"scale/runs/{training['run']}/{training['seed']}"
    shutil.copytree(run, folder)
    evaluation = {
        "kind": "evaluation",
        "suite": "my_suite",
        "metrics": {"entropy": 1.25},
        "per_item": {},
    }
    path = tmp_path / f"scale/evaluations/my_suite/{training['run']}/{training['seed']}.json"
    path.parent.mkdir(parents=True)
    publish_result(path, {**training, **evaluation}, [])
    text = model_card(folder, None, "m", own_code=True)
    assert re.search(r"\| entropy +\| my\\_suite +\| 1\.2500 +\| 1 ", text), text


def test_a_run_at_the_top_of_a_disk_has_nothing_beside_it(tmp_path: Path) -> None:
    run, _ = write_training(tmp_path)
    with TemporaryDirectory(dir="/tmp") as top:
        shutil.copytree(run, top, dirs_exist_ok=True)
        text = model_card(Path(top), None, "m", own_code=True)
    assert "its manifest does not lie beside the run" in text


def test_what_is_published_is_loaded_by_us_and_by_remote_code(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "ours")
    publish(run, tmp_path / "theirs", format="diffllama")
    cards = [(tmp_path / name / "README.md").read_text() for name in ("ours", "theirs")]
    assert ["trust_remote_code=True" in card for card in cards] == [True, False]
    assert '("FOLDER_OR_ID", trust_remote_code=False)' in cards[0]  # of the tokenizer
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        expected = load_model(run)(tokens)
        assert torch.equal(load_model(tmp_path / "ours")(tokens), expected)
    code = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder, remote in zip(sys.argv[1:], (True, False)):
    alone = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    assert alone("a").input_ids
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=remote)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id
    with torch.no_grad():
        print(type(model).__name__, model(torch.arange(12)[None]).logits[0, -1, :3].tolist())
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "ours", tmp_path / "theirs"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    for line, kind in zip(
        lines, ("DiffTransformerForCausalLM", "DiffLlamaForCausalLM"), strict=True
    ):
        name, _, numbers = line.partition(" ")
        assert name == kind
        assert json.loads(numbers) == pytest.approx(expected[0, -1, :3].tolist(), abs=1e-4)


def test_a_run_is_pushed(run: Path, tmp_path: Path) -> None:
    with serving(TOKEN) as there:
        ended = pushed(run, tmp_path / "out", "--push-to", "me/model", HF_ENDPOINT=there.address,
                       HF_TOKEN=TOKEN)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert there.repositories["me/model"]["visibility"] == "private"
    assert there.tokens == {TOKEN}
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert there.files == written
    assert there.large  # the weights went by the storage of large files
    assert f"{there.address}/me/model/commit/c0ffee" in ended.stdout
    assert TOKEN not in ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_push_that_failed_is_done_again(run: Path, tmp_path: Path) -> None:
    words = ["--push-to", "me/model"]
    with serving(TOKEN) as there:
        nobody = pushed(run, tmp_path / "out", *words, HF_ENDPOINT=there.address, HF_TOKEN="hf_no")
        assert nobody.returncode == 2 and "push it again" in nobody.stderr.splitlines()[-1]
        assert "hf_no" not in nobody.stdout + nobody.stderr
        again = pushed(run, tmp_path / "out", *words, HF_ENDPOINT=there.address, HF_TOKEN=TOKEN)
        assert again.returncode == 0, again.stderr
        assert "model.safetensors" in there.files
        for other in (["--license", "cc0-1.0"], ["--format", "diffllama"]):
            refused = pushed(run, tmp_path / "out", *words, *other, HF_ENDPOINT=there.address,
                             HF_TOKEN=TOKEN)  # fmt: skip
            assert refused.returncode == 2 and "not empty" in refused.stderr
        (tmp_path / "out" / "README.md").unlink()  # half of one
        half = pushed(run, tmp_path / "out", *words, HF_ENDPOINT=there.address, HF_TOKEN=TOKEN)
    assert half.returncode == 2 and "not empty" in half.stderr


@pytest.mark.parametrize(
    ("file", "saved", "published"),
    [
        ("config.json", {"_name_or_path": "/data/user/secret customer/m"}, {"_name_or_path": "m"}),
        ("tokenizer_config.json", {"name_or_path": "~/acme/base/"}, {"name_or_path": "base"}),
        ("tokenizer_config.json", {"vocab_file": "../acme/v.txt"}, {"vocab_file": "v.txt"}),
        ("generation_config.json", {"cache_dir": "C:\\Users\\user"}, {"cache_dir": "user"}),
        ("config.json", {"_name_or_path": "owner/model"}, {"_name_or_path": "owner/model"}),
        ("tokenizer_config.json", {"eos_token": "/a/b"}, {"eos_token": "/a/b"}),
    ],
)
def test_local_paths_are_not_published(
    file: str, saved: dict[str, str], published: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / file).write_text(json.dumps(saved | {"model_type": "x"}))
    forget_folders(tmp_path)
    assert json.loads((tmp_path / file).read_text()) == published | {"model_type": "x"}


def test_a_push_without_token_or_name_writes_nothing(run: Path, tmp_path: Path) -> None:
    for words, environment, why in (
        (["--push-to", "me/model"], {}, "HF_TOKEN"),
        (["--push-to", "model"], {"HF_TOKEN": TOKEN}, "OWNER/NAME"),
    ):
        ended = pushed(run, tmp_path / "out", *words, **environment)
        assert ended.returncode == 2
        assert why in ended.stderr.splitlines()[-1] and "Traceback" not in ended.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
def test_what_transformers_saved_is_published(shard_size: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    run, _ = write_training(tmp_path)
    model = DiffTransformerForCausalLM.wrap(load_model(run))
    tokenizer = AutoTokenizer.from_pretrained(run, trust_remote_code=False)
    saved = tmp_path / "saved"
    arguments = TrainingArguments(str(tmp_path / "trainer"), use_cpu=True, report_to=[])
    Trainer(model, arguments, processing_class=tokenizer).save_model(str(saved))
    if shard_size != "5GB":  # Trainer has no such argument
        (saved / "model.safetensors").unlink()
        model.save_pretrained(saved, max_shard_size=shard_size)
    assert (len([*saved.glob("*.safetensors")]) > 1) == (shard_size != "5GB")
    export_model(saved, tmp_path / "exported")
    publish(saved, tmp_path / "ours", license="cc-by-4.0")
    publish(saved, tmp_path / "theirs", "diffllama")
    publish(tmp_path / "exported", tmp_path / "again")
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        expected = load_model(run)(tokens)
        for name in ("ours", "theirs", "again"):
            loaded = AutoModelForCausalLM.from_pretrained(tmp_path / name)
            torch.testing.assert_close(loaded(tokens).logits, expected, rtol=0, atol=1e-5)
            assert loaded.config.eos_token_id == tokenizer.eos_token_id
            assert not (tmp_path / name / "provenance.json").exists()
    text = (tmp_path / "ours/README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "cc-by-4.0" and "diff_v1" in head["tags"]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert re.search(rf"\| Parameters +\| {parameters:,} +\|", text), text
    assert "saved without a training record" in text and "No results" in text
    assert "trust_remote_code=True" in text
    assert not re.search("## (Data|Training|Evaluation|Claims)|None|unknown", text), text
    assert "trust_remote_code" not in (tmp_path / "theirs/README.md").read_text()


def test_a_card_without_a_training_record_matches_only_its_weights(tmp_path: Path) -> None:
    run, _ = write_training(tmp_path)
    (run / "training.json").unlink()
    publish(run, tmp_path / "out")
    assert is_published(run, tmp_path / "out")
    assert not is_published(run, tmp_path / "out", license="cc0-1.0")
    weights = load_file(run / "model.safetensors")
    save_weights(run / "model.safetensors", {name: weight * 2 for name, weight in weights.items()})
    assert not is_published(run, tmp_path / "out")


def test_a_folder_without_a_record_is_a_model_of_ours_or_refused(tmp_path: Path) -> None:
    for folder, why in (
        (write_llama(tmp_path), "config.json: is a llama"),
        (tmp_path / "nothing", "of a model of difftransformer that transformers saved"),
    ):
        with pytest.raises(UserError, match=why) as refusal:
            publish(folder, tmp_path / "out")
        assert "\n" not in str(refusal.value) and not (tmp_path / "out").exists()


def test_a_refused_or_unreachable_hub_is_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(run, tmp_path / "out")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with serving(TOKEN) as there:
        monkeypatch.setenv("HF_ENDPOINT", there.address)
        with pytest.raises(UserError, match="not pushed") as refusal:
            hub.push(tmp_path / "out", "me/model")
    assert "\n" not in str(refusal.value) and "hf_wrong" not in str(refusal.value)
    with pytest.raises(UserError, match=r"README\.md: no such file"):
        hub.push(tmp_path, "me/model")


def test_what_is_no_run_is_one_line(run: Path, tmp_path: Path) -> None:
    for folder, why in ((tmp_path / "nothing", "no such file"), (tmp_path, "no such file")):
        with pytest.raises(UserError, match=why):
            publish(folder, tmp_path / "out")
    for spoiled in ("model.safetensors", "training.json"):
        copy = tmp_path / f"results/runs/{spoiled}/0"
        shutil.copytree(run, copy)
        (copy / spoiled).write_bytes((copy / spoiled).read_bytes()[:100])
        with pytest.raises(UserError, match=spoiled.replace(".", r"\.")) as refusal:
            publish(copy, tmp_path / "out")
        assert "\n" not in str(refusal.value)
        assert not (tmp_path / "out").exists()
    publish(run, tmp_path / "out")
    with pytest.raises(UserError, match="not empty"):
        publish(run, tmp_path / "out")


def test_a_token_that_an_error_repeats_is_masked(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import HfApi

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("401 for Bearer hf_wrong")

    publish(run, tmp_path / "out")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    monkeypatch.setattr(HfApi, "create_repo", refused)
    with pytest.raises(UserError, match=r"not pushed, RuntimeError: 401 for Bearer \*\*\*;"):
        hub.push(tmp_path / "out", "me/model")
