"""Adapting a trained run: what each method trains and leaves, folding, and being killed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from small_decoders import model_of
from small_llama_cpp import log_probabilities, serve
from small_transformers import byte_level
from stopping import assert_killed_ends_alike, metrics
from tiny_training import Train, column, make_run_config, train_in

from difftransformer.config.run import RunConfig
from difftransformer.convert.checkpoint import load_model
from difftransformer.convert.export import export_model
from difftransformer.data.tokenizer import END_OF_TEXT, write_tokenizer
from difftransformer.errors import ConfigError, UserError
from difftransformer.models.language_model import HFCausalLM
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.layout import TRAINING
from difftransformer.training import methods
from difftransformer.training.method import Task
from difftransformer.training.methods import configure, prepare

METHODS: dict[str, dict[str, Any]] = {
    "full": {},
    "kvo": {},
    "dex": {"annealing": 0.5},
    "lora": {"rank": 4},
    "pissa": {"rank": 4},
    "galore": {"rank": 4, "gap": 7},
    "apollo": {"rank": 4, "gap": 7},
}
MORE = ("kvo", "lora", "apollo")
PROJECTIONS = {"qkv_proj", "o_proj"}


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """What is imported before a fork need not be after it."""
    import peft  # noqa: F401

    import difftransformer.convert.hf  # noqa: F401


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A finished run, which tests only read."""
    return train_in(tmp_path_factory.mktemp("base"), text)(make_run_config("softmax", steps=40))


def child(method: str, changes: dict[str, Any] | None = None, **training: Any) -> RunConfig:
    run_config = make_run_config("softmax", **({"steps": 24, "lr": 3e-3} | training))
    adapt = {"method": method} | METHODS[method] | (changes or {})
    return run_config.model_copy(update={"run": method, "init_from": "softmax", "adapt": adapt})


def test_every_method_is_tested_here() -> None:
    folder = Path(methods.__path__[0])
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == METHODS.keys()


@pytest.mark.parametrize("method", METHODS)
def test_adapting_lowers_the_loss_and_saves_a_plain_model(
    train: Train, base: Path, method: str
) -> None:
    folder = train(child(method), method, parent=base)
    before, after = metrics(base), metrics(folder)
    assert after["validation_loss"] < before["validation_loss"]
    assert after["parameters"] == before["parameters"]
    ours, theirs = (load_file(run_dir / "out/model.safetensors") for run_dir in (folder, base))
    assert ours.keys() == theirs.keys()
    changed = {name for name in ours if not ours[name].equal(theirs[name])}
    if method in ("kvo", "dex"):
        assert {name.split(".")[-2] for name in changed} == PROJECTIONS
        rows = {name: ours[name].shape[0] // 3 for name in ours if "qkv_proj" in name}
        for name, queries in rows.items():  # W_Q is frozen
            assert ours[name][:queries].equal(theirs[name][:queries])
    elif method in ("lora", "pissa"):
        matrices = {name for name in ours if ours[name].dim() == 2 and name.startswith("layers")}
        assert changed == matrices
    else:
        assert changed == ours.keys()


@pytest.mark.parametrize(
    ("method", "trained", "extra"),
    [  # d_model 32, heads of 8, feed-forward 64, two layers, 64 tokens with a matrix for each side
        ("full", 24_736, 0),
        ("kvo", 2 * 3 * 32 * 32, 0),
        ("dex", 2 * (3 * 32 * 32 + 8 * 8 + 1), 2 * (8 * 8 + 1)),
        ("lora", 2 * 4 * (4 * (32 + 32) + 3 * (32 + 64)), 2 * 4 * (4 * (32 + 32) + 3 * (32 + 64))),
    ],
)
def test_trained_and_extra_parameters_are_counted(
    train: Train, base: Path, method: str, trained: int, extra: int
) -> None:
    actual = metrics(train(child(method, steps=3), method, parent=base))
    assert (actual["trained_parameters"], actual["extra_parameters"]) == (trained, extra)


def test_dex_model_runs_in_llama_cpp(train: Train, base: Path, tmp_path: Path) -> None:
    out = train(child("dex"), "dex", parent=base) / "out"
    model = load_model(out)
    size = model.config.vocab_size
    texts = ["Which heads attend to what, and whose outputs are then subtracted?"]
    tokenizer = byte_level(size, texts, END_OF_TEXT, alphabet=False)
    # Without its result, by which another tokenizer would be refused.
    shutil.copytree(out, tmp_path / "trained", ignore=shutil.ignore_patterns(TRAINING))
    write_tokenizer(tmp_path / "trained/tokenizer.json", tokenizer, {"kind": "bpe"}, END_OF_TEXT)
    export_model(tmp_path / "trained", tmp_path / "out", "gguf")
    tokens = torch.randint(1, size, (11,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.no_grad():
        ours, before = (
            torch.log_softmax(decoder(torch.tensor([tokens]))[0, -1].double(), -1)
            for decoder in (model, load_model(base / "out"))
        )
    server, letter = serve(tmp_path / "out/model.gguf"), tokenizer.token_to_id("a")
    theirs = log_probabilities(server, tokens, size, letter)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=2e-5)
    assert (ours - before).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        *((method, {}) for method in METHODS),
        ("galore", {"rank": 40}),  # more than a matrix has on its shorter side
        ("apollo", {"rank": 40}),
        ("lora", {"rank": "dex"}),
    ],
)
def test_planned_parameter_counts_match_the_prepared_model(
    method: str, changes: dict[str, Any]
) -> None:
    """From sizes alone what the method itself says of a model with grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    options = {"vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        **options,  # type: ignore[arg-type]
    )
    run_config = child(method, changes)
    heads = {"variant": "softmax", "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    sizes = replace(run_config.model, ffn_dim=48, attention=heads)
    assert run_config.adapt is not None
    settings = configure(run_config.adapt)
    tokens = torch.zeros(1, 16, dtype=torch.long)
    task = Task(run_config.training, 0, lambda number: [tokens])
    prepared = prepare(HFCausalLM(LlamaForCausalLM(config)), settings, task)
    counts = settings.parameter_counts(sizes)
    assert counts.trained == settings.trainable_parameters(sizes) == prepared.trained_parameters
    state_size = sum(
        tensor.numel() for tensor in prepared.optimizer.tensors().values() if tensor.dim()
    )
    assert counts.optimizer == pytest.approx(state_size, abs=4)  # scalars, as lambda's moments


@pytest.mark.parametrize("method", METHODS)
def test_non_finite_gradients_leave_weights_unchanged(method: str) -> None:
    """As on a GPU, which does not wait to see them."""
    run_config, tokens = child(method), torch.arange(12).view(1, 12)
    assert run_config.adapt is not None
    model = HFCausalLM(model_of("llama"))
    prepared = prepare(
        model, configure(run_config.adapt), Task(run_config.training, 0, lambda number: [tokens])
    )
    changed = []
    for bad in (True, False):
        before = [parameter.detach().clone() for parameter in prepared.optimizer.parameters]
        for parameter in prepared.optimizer.parameters:
            parameter.grad = torch.full_like(parameter, torch.nan if bad else 0.5)
        prepared.step(1e-2, torch.tensor(float(bad)))
        pairs = zip(before, prepared.optimizer.parameters, strict=True)
        changed.append([not old.equal(new) for old, new in pairs])
        assert all(parameter.grad is None for parameter in prepared.optimizer.parameters)
    assert not any(changed[0]) and any(changed[1])


@pytest.mark.parametrize("method", ["full", "dex", "lora"])
def test_activation_checkpointing_gives_the_same_bytes(
    train: Train, base: Path, method: str
) -> None:
    plain = train(child(method, steps=6), "plain", parent=base)
    again = train(child(method, steps=6, activation_checkpointing="layer"), "again", parent=base)
    ours, theirs = ((run_dir / "out/model.safetensors").read_bytes() for run_dir in (plain, again))
    assert ours == theirs


@pytest.mark.parametrize(
    "method",
    # The others go on as one of these does: from what trains alone, or from all there is.
    [pytest.param(method, marks=[pytest.mark.slow] * (method in MORE)) for method in METHODS],
)
def test_killed_run_resumes_to_the_same_bytes(
    train: Train, base: Path, tmp_path: Path, method: str
) -> None:
    run_config = child(method, steps=61, checkpoint_every=4, log_every=3)
    assert_killed_ends_alike(train, run_config, tmp_path, parent=base)


@pytest.mark.parametrize(("method", "moved"), [("lora", 0), ("pissa", 2 * 7)])
def test_checkpoint_holds_trained_tensors_and_changed_base_tensors(
    train: Train, base: Path, tmp_path: Path, method: str, moved: int
) -> None:
    """PiSSA takes its start out of the base by an SVD, which need not come out alike again."""
    train(child(method, steps=4, checkpoint_every=2), method, parent=base)
    newest = max((tmp_path / method / "state").glob("checkpoint-*"))
    held = {name for name in load_file(newest / "tensors.safetensors") if name.startswith("model.")}
    assert sum("lora_" in name for name in held) == 2 * 2 * 7
    assert sum("base_layer" in name for name in held) == moved
    assert len(held) == 2 * 2 * 7 + moved


@pytest.mark.parametrize("method", ["kvo", "dex", "lora", "pissa"])
def test_adapter_on_the_base_matches_the_folded_model(
    train: Train, base: Path, method: str
) -> None:
    """By peft itself: the base, and the saved adapter on it."""
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict

    from difftransformer.convert.llama import to_llama

    folder = train(child(method), method, parent=base) / "out"
    with safe_open(folder / "adapter.safetensors", framework="pt") as file:
        settings = json.loads(file.metadata()["settings"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    inner = to_llama(load_model(base / "out"), "llama")
    model = get_peft_model(inner, PeftConfig.from_peft_type(**settings))
    set_peft_model_state_dict(model, tensors)
    tokens = torch.arange(20)[None] % 64
    with torch.no_grad():
        logits, folded = model(tokens).logits, load_model(folder)(tokens)
        assert (logits - load_model(base / "out")(tokens)).abs().max() > 1e-3
    torch.testing.assert_close(folded, logits, atol=1e-5, rtol=0)


def test_lambda_is_in_the_history_and_the_final_metrics(train: Train, base: Path) -> None:
    folder = train(child("dex", {"annealing": 1.0}, log_every=1), "dex", parent=base)
    for layer, initial in enumerate((0.2, 0.8 - 0.6 * 0.7408182206817179)):
        course = column(folder, f"lambda_l{layer}")
        assert len(course) == 24
        assert course[11] == pytest.approx(0.25 * initial, abs=0.02)  # the bump of equation 4
        assert abs(course[-1]) < 0.1
        assert metrics(folder)[f"lambda_l{layer}"] == course[-1]


def test_the_same_text_chooses_the_same_heads(train: Train, base: Path) -> None:
    def heads(name: str, choice: str) -> Any:
        folder = train(child("dex", {"heads": choice}, steps=3), name, parent=base)
        with safe_open(folder / "out/adapter.safetensors", framework="pt") as file:
            return json.loads(file.metadata()["settings"])["heads"]

    high, low = heads("high", "entropy"), heads("low", "low_entropy")
    assert heads("again", "entropy") == high
    for layer in ("0", "1"):
        assert sorted(high[layer] + low[layer]) == [0, 1, 2, 3]
    assert heads("all", "all") == "all"


def test_missing_heads_give_one_error_line(train: Train, base: Path) -> None:
    with pytest.raises(ConfigError, match="layer 0 has heads 0 to 3, got 4"):
        train(child("dex", {"heads": [0, 4]}), "dex", parent=base)


def test_retrained_parent_restarts_the_adaptation(
    train: Train, base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a GPU a training that is forced again has the same fingerprint and other weights.

    So does the copy of its state, which another machine would go on from.
    """
    copy = tmp_path / "copy"
    other = Path(shutil.copytree(base, tmp_path / "retrained"))
    weights, main = other / "out" / "model.safetensors", other / "out" / "training.json"
    weights.write_bytes(save({name: tensor * 1.01 for name, tensor in load_file(weights).items()}))
    result = json.loads(main.read_text())
    files = [main.parent / name for name in result.pop("sha256")["files"]]
    write_checked(main, result, files)
    train(child("lora"), "lora", parent=base, mirror=f"file://{copy}")
    shutil.rmtree(tmp_path / "lora")
    (copy / "finished").unlink()
    folder = train(child("lora"), "lora", parent=other, mirror=f"file://{copy}")
    assert "the parent run was retrained: starting from scratch" in caplog.text
    fresh = train(child("lora"), "fresh", parent=other)
    made = [run_dir / "out" / "model.safetensors" for run_dir in (folder, fresh)]
    assert made[0].read_bytes() == made[1].read_bytes()
    assert (copy / "finished").exists()
    (checkpoint,) = copy.glob("checkpoint-*")
    state_sums = folder / "state" / checkpoint.name / "sums.json"
    assert (checkpoint / "sums.json").read_bytes() == state_sums.read_bytes()


def test_missing_or_wrong_parent_is_rejected(train: Train, base: Path) -> None:
    with pytest.raises(ConfigError, match="give that training's result"):
        train(child("lora"), "no parent")
    other = child("lora").model_copy(update={"init_from": "another"})
    with pytest.raises(UserError, match="holds run softmax"):
        train(other, "another", parent=base)


def test_base_that_is_not_a_llama_is_rejected(train: Train) -> None:
    base = train(make_run_config("diff_v1", steps=3), "diff")
    run_config = make_run_config("diff_v1").model_copy(
        update={"run": "child", "init_from": "diff_v1", "adapt": {"method": "lora"}}
    )
    with pytest.raises(UserError, match="the model's attention is diff_v1, llama is softmax"):
        train(run_config, "child", parent=base)


def test_stale_adapter_is_removed(train: Train, base: Path) -> None:
    folder = train(child("lora"), "same", parent=base)
    assert (folder / "out" / "adapter.safetensors").is_file()
    shutil.rmtree(folder / "state")
    train(make_run_config("softmax"), "same")
    assert not (folder / "out" / "adapter.safetensors").exists()


def test_galore_that_diverges_before_a_projection_is_one_line(train: Train, base: Path) -> None:
    run_config = child("galore", {"rank": 4, "gap": 1}, lr=1e38, grad_clip=None)
    with pytest.raises(UserError, match="training diverged at step"):
        train(run_config, "galore", parent=base)


def test_a_lambda_that_diverges_is_one_line(train: Train, base: Path) -> None:
    run_config = child("dex")
    fixed = {"method": "dex", "lambda_init": 3e38, "lambda_schedule": "fixed"}
    run_config = run_config.model_copy(update={"adapt": fixed})
    with pytest.raises(UserError, match="training diverged at step 1/24") as refusal:
        train(run_config, "dex", parent=base)
    assert "\n" not in str(refusal.value)
