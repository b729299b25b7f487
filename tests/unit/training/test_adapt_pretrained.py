"""Adapting pretrained models: five architectures as they are, and what is refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_decoders import KINDS, model_of
from small_evaluation import evaluate_as_job, write_text
from small_language_models import assert_scored_alike, run_lm_eval, suite, write_tokenizer
from stopping import assert_killed_ends_alike, metrics
from tiny_training import Train, column, make_run_config
from transformers import AutoModelForCausalLM, AutoTokenizer

from difftransformer.config.data import DatasetConfig
from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.config.pretrained import sizes
from difftransformer.config.run import PRETRAINED_BASE, PretrainedModel, RunConfig
from difftransformer.convert.export import export_model
from difftransformer.data.tokenizer import train_tokenizer
from difftransformer.errors import UserError
from difftransformer.publishing.publish import is_published, publish

ADAPT: dict[str, dict[str, Any]] = {
    "dex": {"method": "dex", "annealing": 0.5},
    "lora": {"method": "lora", "rank": 4},
}
CHANGED = {"dex": {"k_proj", "v_proj", "o_proj"}}
"""Matrices of a layer that a method changes; the others change all."""
ALL = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """What is imported before a fork need not be after it."""
    import peft  # noqa: F401


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", "qwen2")


def write_base(folder: Path, kind: str, **settings: Any) -> Path:
    """A model with random weights and a tokenizer, as `save_pretrained` leaves it."""
    inner = model_of(kind, vocab_size=300, initializer_range=0.3, **settings)
    inner.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_data(folder: Path, base: Path) -> Path:
    """Text that can be predicted, in the token ids of a model."""
    steps = np.random.default_rng(0).integers(1, 3, size=(60, 80))
    documents = (np.cumsum(steps, axis=1) % 64).tolist()

    made = DatasetConfig.model_validate(
        {
            "sources": {"s": {"kind": "files", "globs": ["*.txt"], "license": "none"}},
            "tokenizer": {"kind": "huggingface", "name": str(base)},
        }
    )
    return write_text(
        folder, documents, 300, lambda data: train_tokenizer(made, data / "tokenizer.json")
    )


def child(base: Path, method: str, **training: Any) -> RunConfig:
    model = PretrainedModel(name=str(base), dtype="float32")
    run_config = make_run_config("softmax", **({"steps": 24, "lr": 3e-3} | training))
    changes = {"run": method, "init_from": PRETRAINED_BASE, "adapt": ADAPT[method]}
    return run_config.model_copy(update=changes | {"pretrained": model, "model": sizes(model)})


@pytest.mark.parametrize("method", ADAPT)
@pytest.mark.parametrize("kind", KINDS)
def test_adapting_lowers_the_loss_and_keeps_the_model_class(
    train: Train, tmp_path: Path, kind: str, method: str
) -> None:
    base = write_base(tmp_path / "base", kind)
    data = write_data(tmp_path / "data", base)
    folder = train(child(base, method), method, dataset=data)
    course, out = column(folder, "loss"), folder / "out"
    assert course[-1] < course[0] - 0.1
    ours, theirs = (AutoModelForCausalLM.from_pretrained(path) for path in (out, base))
    assert type(ours) is type(theirs)
    configs = [model.config.to_diff_dict() for model in (ours, theirs)]
    for config in configs:
        config.pop("dtype", None)
        config.pop("_name_or_path", None)
    assert configs[0] == configs[1]
    before, after = theirs.state_dict(), ours.state_dict()
    changed = {name for name in after if not after[name].equal(before[name])}
    assert {name.split(".")[-2] for name in changed} == CHANGED.get(method, ALL)
    words = "Which of these is a source of light?"
    actual, expected = (AutoTokenizer.from_pretrained(folder) for folder in (out, base))
    assert actual(words).input_ids == expected(words).input_ids
    assert actual.eos_token == expected.eos_token


def test_killed_run_resumes_to_the_same_bytes(train: Train, base: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", base)
    run_config = child(base, "dex", steps=61, checkpoint_every=4, log_every=3)
    assert_killed_ends_alike(train, run_config, tmp_path, dataset=data)


@pytest.mark.parametrize("method", ADAPT)
def test_adapter_on_the_base_matches_the_folded_model(
    train: Train, base: Path, tmp_path: Path, method: str
) -> None:
    """As `PeftModel.from_pretrained` loads what is exported."""
    from peft import PeftModel

    out = train(child(base, method), method, dataset=write_data(tmp_path / "data", base)) / "out"
    export_model(out, tmp_path / "adapter", "peft")
    inner = AutoModelForCausalLM.from_pretrained(base)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        before = inner(tokens).logits
        logits = PeftModel.from_pretrained(inner, str(tmp_path / "adapter"))(tokens).logits
        folded = AutoModelForCausalLM.from_pretrained(out)(tokens).logits
    assert (folded - before).abs().max() > 1e-3
    torch.testing.assert_close(folded, logits, atol=1e-5, rtol=0)


def _no_adapter(out: Path) -> None:
    (out / "adapter.safetensors").unlink()


def _cut_adapter(out: Path) -> None:
    path = out / "adapter.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    (out / "training.json").unlink()


@pytest.mark.parametrize(
    ("method", "damage", "output"),
    [
        ("dex", _no_adapter, "with `adapt`"),
        ("dex", _cut_adapter, "damaged"),
        ("full", lambda out: None, "has no adapter"),
    ],
)
def test_missing_adapter_gives_one_error_line(
    train: Train, base: Path, tmp_path: Path, method: str, damage: Any, output: str
) -> None:
    run_config = child(base, "dex", steps=3).model_copy(update={"adapt": {"method": method}})
    out = train(run_config, method, dataset=write_data(tmp_path / "data", base)) / "out"
    damage(out)
    with pytest.raises(UserError, match=output) as refusal:
        export_model(out, tmp_path / "adapter", "peft")
    assert "\n" not in str(refusal.value)


def test_text_loss_matches_transformers(train: Train, base: Path, tmp_path: Path) -> None:
    """Of the model as it is, and of what adapting it made; in windows of 16."""
    data = write_data(tmp_path / "data", base)
    out = train(child(base, "lora"), "lora", dataset=data, seed=3) / "out"
    suite = {"kind": "adaptation", "dataset": "tiny", "seq_len": 16, "batch_size": 5}
    requested: dict[str, Any] = {"scale": "unit", "suite": "text", "config": suite}
    tokens = torch.from_numpy(np.fromfile(data / "shards" / "tokens.bin", "<u2").astype(np.int64))
    windows = tokens.unfold(0, 17, 16)
    for run, folder in ((PRETRAINED_BASE, base), ("lora", out)):
        own = {"pretrained": {"name": str(base)}} if folder == base else {}
        run_config = EvaluationConfig.model_validate(requested | {"run": run} | own)
        result = tmp_path / f"{run}.json"
        model = None if folder == base else out
        evaluate_as_job(run_config, result, model=model, dataset=data)
        actual = json.loads(result.read_text())["metrics"]
        theirs = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            logits = theirs(windows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        assert actual["loss"] == pytest.approx(loss.item(), abs=1e-5)
        assert actual["tokens"] == windows[:, 1:].numel()


def test_base_and_adapted_model_get_the_same_needle_prompts(train: Train, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "qwen2", max_position_embeddings=512)
    data = write_data(tmp_path / "data", base)
    out = train(child(base, "lora"), "lora", dataset=data, seed=3) / "out"
    suite = {"kind": "needles", "format": "text", "pairs": [[2, 1]], "lengths": [300]}
    settings = suite | {"depths": [0, 100], "samples": 2}
    prompts = []
    for run, folder in ((PRETRAINED_BASE, base), ("lora", out)):
        own = {"pretrained": {"name": str(base)}} if folder == base else {}
        requested: dict[str, Any] = {
            "scale": "unit",
            "suite": "far",
            "config": settings,
            "run": run,
        }
        run_config = EvaluationConfig.model_validate(requested | own)
        result = tmp_path / f"{run}.json"
        model = None if folder == base else out
        details = evaluate_as_job(run_config, result, model=model, dataset=data)
        metrics = json.loads(result.read_text())["metrics"]
        assert metrics["total_n2_r1"] == 4 and metrics["accuracy_n2_r1"] is not None
        lines = (details / "samples.jsonl").read_text().splitlines()
        prompts.append([json.loads(line)["prompt_sha256"] for line in lines])
    assert len(prompts[0]) == 4 and prompts[0] == prompts[1]


def test_adapted_model_scores_like_its_copied_folder(
    train: Train, base: Path, tmp_path: Path
) -> None:
    """The same scores as of a copy that is a pretrained model itself."""
    data = write_data(tmp_path / "data", base)
    out = train(child(base, "lora"), "lora", dataset=data, seed=3) / "out"
    copy = shutil.copytree(out, tmp_path / "copy")
    for name in ("training.json", "adapter.safetensors", "history.csv"):
        (copy / name).unlink()
    suite = {"kind": "language_understanding", "tasks": ["arc_easy", "copa"], "data": "builtin"}
    requested: dict[str, Any] = {"scale": "unit", "suite": "words", "config": suite}
    actual = []
    for run, model, own in (("lora", out, {}), ("copy", None, {"pretrained": {"name": str(copy)}})):
        run_config = EvaluationConfig.model_validate(requested | {"run": run} | own)
        result = tmp_path / f"{run}.json"
        evaluate_as_job(run_config, result, model=model, dataset=None if model is None else data)
        actual.append(json.loads(result.read_text())["metrics"])
    assert actual[0] == actual[1]


def test_publishing_an_adapted_model_requires_a_license(
    train: Train, base: Path, tmp_path: Path
) -> None:
    out = train(child(base, "lora"), "lora", dataset=write_data(tmp_path / "data", base)) / "out"
    with pytest.raises(UserError, match=r"whose license also applies; give --license"):
        publish(out, tmp_path / "published")
    with pytest.raises(UserError, match="stays of its class: publish it without --format"):
        publish(out, tmp_path / "published", "llama", "apache-2.0")
    assert not (tmp_path / "published").exists()
    publish(out, tmp_path / "published", license="apache-2.0")
    card = (tmp_path / "published" / "README.md").read_text()
    assert re.search(rf"\| Made from +\| {base.name} +\|", card)
    assert re.search(r"\| By +\| lora", card) and str(tmp_path) not in card
    assert "license: apache-2.0" in card and "unknown" not in card
    assert "trust_remote_code" not in card
    AutoModelForCausalLM.from_pretrained(tmp_path / "published")
    assert str(tmp_path) in (out / "training.json").read_text()
    for path in (tmp_path / "published").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path.name
    record = json.loads((tmp_path / "published" / "provenance.json").read_text())
    assert record["settings"]["pretrained"]["name"] == base.name
    assert is_published(out, tmp_path / "published", license="apache-2.0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method"), [("llama", "dex"), ("qwen2", "dex"), ("mistral", "lora")]
)
def test_lm_eval_command_gives_the_same_scores(
    train: Train, tmp_path: Path, kind: str, method: str
) -> None:
    base = write_base(tmp_path / "base", kind)
    data = write_data(tmp_path / "data", base)
    out = train(child(base, method), method, dataset=data, seed=3) / "out"
    settings = suite().model_dump(mode="json")
    run_config = EvaluationConfig.model_validate(
        {"scale": "unit", "suite": "words", "run": method, "config": settings}
    )
    evaluate_as_job(run_config, tmp_path / "ours.json", model=out, dataset=data)
    ours = json.loads((tmp_path / "ours.json").read_text())["metrics"]
    assert_scored_alike(ours, run_lm_eval(out, tmp_path))


def test_changed_weights_give_one_error_line(train: Train, base: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", base)
    out = train(child(base, "lora"), "lora", dataset=data, seed=3) / "out"
    weights = bytearray((out / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (out / "model.safetensors").write_bytes(weights)
    suite = {"kind": "adaptation", "dataset": "tiny", "seq_len": 16}
    requested = {"scale": "unit", "suite": "text", "run": "lora", "config": suite}
    run_config = EvaluationConfig.model_validate(requested)
    with pytest.raises(UserError, match=r"model\.safetensors") as refusal:
        evaluate_as_job(run_config, tmp_path / "lora.json", model=out, dataset=data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_lora_at_the_rank_of_dex_trains_as_many_parameters(
    train: Train, tmp_path: Path, kind: str
) -> None:
    base = write_base(tmp_path / "base", kind)
    data = write_data(tmp_path / "data", base)
    dex, lora = (child(base, method, steps=3) for method in ("dex", "lora"))
    lora = lora.model_copy(update={"adapt": {"method": "lora", "rank": "dex"}})
    sizes = [
        metrics(train(run_config, name, dataset=data))["trained_parameters"]
        for run_config, name in ((dex, "dex"), (lora, "lora"))
    ]
    # d_model 24, four heads of 8 over two of keys and values, feed-forward 40, two layers
    assert sizes[0] == 2 * (2 * 24 * 16 + 24 * 32 + 8 * 8 + 1)
    step = 2 * (2 * (24 + 32) + 2 * (24 + 16) + 3 * (24 + 40))
    assert sizes[1] % step == 0 and abs(sizes[1] - sizes[0]) <= step / 2


def _other_ids(base: Path, data: Path) -> None:
    write_tokenizer(base, "quite another text with other words in it")


def _other_sizes(base: Path, data: Path) -> None:
    model_of("qwen2", vocab_size=300, intermediate_size=48).save_pretrained(base)


def _scaled_logits(base: Path, data: Path) -> None:
    _change(base, final_logit_softcapping=30.0)


def _fewer_words(base: Path, data: Path) -> None:
    _change(base, vocab_size=200)


def _cut_off(base: Path, data: Path) -> None:
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _change(base: Path, **settings: Any) -> None:
    path = base / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(
    ("damage", "output"),
    [
        (_other_ids, "has other token ids than"),
        (_other_sizes, "has ffn_dim 48, its run was planned with 40"),
        (_scaled_logits, "has final_logit_softcapping"),
        (_cut_off, "cannot be loaded"),
        (_fewer_words, "its weights have other sizes than its config.json says"),
    ],
)
def test_base_that_does_not_fit_its_run_gives_one_error_line(
    train: Train, base: Path, tmp_path: Path, damage: Any, output: str
) -> None:
    data = write_data(tmp_path / "data", base)
    run_config = child(base, "dex")
    damage(base, data)
    with pytest.raises(UserError, match=output) as refusal:
        train(run_config, "dex", dataset=data)
    assert "\n" not in str(refusal.value)
