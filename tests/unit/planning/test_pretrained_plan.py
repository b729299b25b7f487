"""A pretrained model as the base of adaptations: planned jobs and refused settings."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_decoders import model_of
from small_language_models import write_tokenizer

from difftransformer.config.run import PRETRAINED_BASE
from difftransformer.errors import UserError
from difftransformer.planning.contents import paper_contents
from difftransformer.planning.plan import Plan
from difftransformer.training.memory import estimate_memory

HUB = {
    "name": "owner/decoder",
    "revision": "v1",
    "label": "Decoder",
    "sizes": {
        "vocab_size": 151936, "d_model": 896, "num_layers": 24, "ffn_dim": 4864,
        "max_positions": 32768,
        "attention": {"variant": "softmax", "num_heads": 14, "num_kv_heads": 2, "head_dim": 64},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "mine"
    model_of("qwen2", vocab_size=300, max_position_embeddings=256).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def plan(repository: Path, folder: Path) -> Plan:
    return Plan.load(repository / "config", {"scale": "tiny", "pretrained": str(folder)})


def test_adaptations_start_from_its_files_on_text_in_its_token_ids(
    plan: Plan, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, jobs = plan.jobs.run("adapted_dex"), plan.jobs
    assert run.init_from == PRETRAINED_BASE and run.adapt == {"method": "dex"}
    assert run.pretrained is not None and run.pretrained.name == str(folder)
    assert (run.model.d_model, run.model.vocab_size, run.model.num_layers) == (24, 300, 2)
    assert run.dataset == "second_text_of_pretrained_base"
    assert jobs.run("adapted_dex").init_from == PRETRAINED_BASE
    assert jobs.training_file(PRETRAINED_BASE, 0) == []
    (listing,) = jobs.weights(PRETRAINED_BASE, 0)
    assert str(folder / "model.safetensors") in Path(listing).read_text()
    for run_name in ("adapted_dex", PRETRAINED_BASE):
        manifest = jobs.layout.manifest("stdlib_text_of_pretrained_base")
        assert jobs.measured_manifest("adaptation_source", run_name) == [manifest]
    text, theirs = (
        plan.resolver.dataset(name) for name in ("second_text", "second_text_of_pretrained_base")
    )
    assert theirs.tokenizer.kind == "huggingface" and theirs.tokenizer.name == str(folder)
    assert theirs.sources == text.sources and theirs.tokens == text.tokens
    assert jobs.base_tokenizer("second_text_of_pretrained_base") == []


def test_the_pretrained_model_is_the_base_in_every_adaptation_table(plan: Plan) -> None:
    artifacts = plan.artifacts.available
    adaptations = {f"dex_table{n}" for n in (1, 4, 5, 6)} | {"dex_methods", "dex_frontier"}
    assert adaptations < artifacts.keys()
    assert artifacts["dex_table1"].sections[0].baseline == PRETRAINED_BASE
    assert artifacts["dex_methods"].sections[0].rows[0].run == PRETRAINED_BASE
    for rate in plan.artifacts.resolve("dex_frontier", "table").sections[0].sweep:
        assert plan.jobs.run(rate.run_id).init_from == PRETRAINED_BASE
    # They show models from scratch beside it, or adapt models that were trained for their question.
    others = {"dex_heads", *(f"dex_table{n}" for n in (2, 3, 7, 8)), "dex_figure10"}
    assert not others & artifacts.keys()
    assert artifacts["table6"].sections[0].rows[0].run == "transformer"
    row = plan.artifacts.resolve("dex_table1", "table").sections[0].rows[0]
    assert row.pretrained and row.label == "mine" and row.paper == "transformer"


def test_artifacts_that_are_not_built_say_why(plan: Plan) -> None:
    message = "'dex_table7' cannot be built: Not for the model .* `pretrained`: it also shows"
    with pytest.raises(UserError, match=message):
        plan.require("dex_table7", "rerun")
    assert plan.require("dex_table1", "rerun") is plan.artifacts.available["dex_table1"]
    with pytest.raises(UserError, match="unknown artifact 'dex_tabel1'; did you mean 'dex_table1"):
        plan.require("dex_tabel1", "rerun")


@pytest.mark.parametrize("scale", ["gpu", "paper"])
def test_the_pretrained_model_is_evaluated_on_text_suites(repository: Path, scale: str) -> None:
    def plan(**sizes: int) -> Plan:
        pretrained = HUB | {"sizes": {**HUB["sizes"], **sizes}}  # type: ignore[dict-item]
        return Plan.load(repository / "config", {"scale": scale, "pretrained": pretrained})

    artifacts = ("dex_figure10", "dex_table2", "dex_table3")
    long = plan(max_positions=131072)
    for name in artifacts:
        runs = long.artifacts.available[name].runs()
        assert runs[0] == PRETRAINED_BASE and "adapted_long_dex" in runs
        for suite, run in long.artifacts.evaluations(name):
            text = {"gpu": "fineweb_edu_32k", "paper": "fineweb_edu"}[scale]
            manifest = long.jobs.layout.manifest(f"{text}_of_{PRETRAINED_BASE}")
            assert long.jobs.measured_manifest(suite, run) == [manifest]  # the same for all rows
            assert long.jobs.gpus(run, suite) == 1  # of a head without a card, too
    short = plan(max_positions=2048)  # has no room for what is adapted at greater length
    assert set(long.artifacts.available) - set(short.artifacts.available) == set(artifacts)
    (dex,) = (paper for paper in paper_contents(short.artifacts, []) if "2505" in paper.source)
    (words,) = (item.note for item in dex.items if item.artifact == "dex_table2")
    assert "reads 8192 positions, and it has 2048" in words or scale == "paper"
    assert words.startswith("Not for the model of the setting `pretrained`: adapted_long_")


LLAMA_1B = {
    "vocab_size": 128256, "d_model": 2048, "num_layers": 16, "ffn_dim": 8192,
    "max_positions": 131072,
    "attention": {"variant": "softmax", "num_heads": 32, "num_kv_heads": 8, "head_dim": 64},
}  # fmt: skip


@pytest.mark.parametrize("sizes", [HUB["sizes"], LLAMA_1B], ids=["Qwen2.5-0.5B", "Llama-3.2-1B"])
def test_both_small_base_models_of_the_paper_fit_a_gpu(
    repository: Path, sizes: dict[str, Any]
) -> None:
    pretrained = HUB | {"sizes": sizes}
    plan = Plan.load(repository / "config", {"scale": "gpu", "pretrained": pretrained})
    adapted = [name for name in plan.groups["all"] if name.startswith("dex_")]
    plan.require_room(plan.trainings(adapted))
    runs = map(plan.jobs.run, plan.trainings(adapted))
    largest = max(estimate_memory(run, "cuda").peak for run in runs)
    assert 20 < largest / 2**30 < 70


def test_the_dataset_of_pretrained_models_reruns_no_other_evaluation(
    config_folder: Path, tmp_path: Path
) -> None:
    def config_file() -> str:
        plan = Plan.load(config_folder, {"scale": "gpu", "results": str(tmp_path)})
        return plan.jobs.evaluation_config_file("needles_long", "long_diff")

    before, scale = config_file(), config_folder / "scales" / "gpu.yaml"
    text = scale.read_text()
    assert "pretrained_dataset: fineweb_edu_32k" in text
    scale.write_text(
        text.replace("pretrained_dataset: fineweb_edu_32k", "pretrained_dataset: null")
    )
    assert config_file() == before


def test_nothing_else_changes(plan: Plan, repository: Path) -> None:
    other = Plan.load(repository / "config", {"scale": "tiny"})
    assert PRETRAINED_BASE not in other.resolver.runs
    for name in ("transformer", "diff", "math_diff"):
        assert plan.jobs.run(name) == other.jobs.run(name)
    assert other.jobs.run("adapted_dex").pretrained is None


def test_a_hub_model_is_planned_by_its_configured_sizes(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "gpu", "pretrained": HUB})
    run = plan.jobs.run("adapted_dex")
    assert run.model.d_model == 896 and plan.jobs.weights(PRETRAINED_BASE, 0) == []
    assert run.pretrained is not None and run.pretrained.revision == "v1"
    assert plan.artifacts.resolve("dex_table1", "table").sections[0].rows[0].label == "Decoder"


def test_a_hub_model_without_a_revision_uses_main(repository: Path) -> None:
    pretrained = {key: value for key, value in HUB.items() if key != "revision"}
    plan = Plan.load(repository / "config", {"scale": "gpu", "pretrained": pretrained})
    dataset = plan.resolver.dataset(plan.jobs.run("adapted_dex").dataset)
    assert dataset.tokenizer.kind == "huggingface" and dataset.tokenizer.revision == "main"


@pytest.mark.parametrize(
    ("pretrained", "message"),
    [
        ("./nowhere", "nowhere: no such model folder"),
        ({"nam": "x"}, "pretrained.nam: unknown key; did you mean 'name'"),
        (HUB | {"sizes": {"d_modl": 8}}, "did you mean 'd_model'"),
        (
            {"name": "owner/decoder", "trust_remote_code": True},
            "trust_remote_code needs the commit whose code is trusted",
        ),
        (7, "pretrained"),
    ],
)
def test_a_model_that_cannot_be_adapted_is_a_one_line_error(
    repository: Path, pretrained: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        Plan.load(repository / "config", {"scale": "tiny", "pretrained": pretrained})
    assert "\n" not in str(refusal.value)


def test_a_run_cannot_continue_from_the_pretrained_model(config_folder: Path, folder: Path) -> None:
    runs = config_folder / "runs.yaml"
    entry = "  further: {label: Further, base: transformer, init_from: pretrained_base}\n"
    runs.write_text(runs.read_text() + entry)
    with pytest.raises(
        UserError, match=r"runs\.further: a pretrained model is only adapted"
    ) as refusal:
        Plan.load(config_folder, {"scale": "tiny", "pretrained": str(folder)})
    assert "\n" not in str(refusal.value)


def test_a_folder_whose_context_is_too_short_is_one_line(
    repository: Path, folder: Path, tmp_path: Path
) -> None:
    short = shutil.copytree(folder, tmp_path / "short")
    config = json.loads((short / "config.json").read_text()) | {"max_position_embeddings": 16}
    (short / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="max_positions 16"):
        Plan.load(repository / "config", {"scale": "tiny", "pretrained": str(short)})
