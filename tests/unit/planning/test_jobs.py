"""Jobs: their slices, their code, and the files they need."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.config.run import RunConfig
from difftransformer.errors import CheckpointError, ConfigError, DataError
from difftransformer.planning.checks import check_evaluation, check_run
from difftransformer.planning.plan import Plan


def test_slices_are_files_named_by_their_content(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    first = plan.jobs.write("run", plan.jobs.run("diff"))
    again = Plan.load(repository / "config", {"scale": "smoke"}).jobs
    assert first == again.write("run", again.run("diff"))
    assert plan.jobs.write("run", plan.jobs.run("transformer")) != first
    content = Path(first).read_bytes()
    Path(first).write_bytes(bytes(len(content)))  # as after a power cut
    assert Path(plan.jobs.write("run", plan.jobs.run("diff"))).read_bytes() == content
    assert RunConfig.model_validate_json(Path(first).read_bytes()) == plan.jobs.run("diff")


def test_code_of_a_run_is_that_of_its_variant_alone(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    assert plan.jobs.code("pretrain", "diff") == plan.jobs.code("pretrain", "diff_no_groupnorm")
    assert plan.jobs.code("pretrain", "diff") != plan.jobs.code("pretrain", "transformer")


@pytest.mark.parametrize(
    ("dataset", "run", "fewest"),
    [("recall", "recall_diff", 8 * 64), ("stdlib_text", "diff", 8 * 64 + 1)],
)
def test_datasets_need_at_least_one_batch(
    repository: Path, dataset: str, run: str, fewest: int
) -> None:
    original = ConfigResolver.load(repository / "config", {"scale": "smoke"})
    for tokens in (fewest, fewest - 1):
        changed = {dataset: original.scale.datasets[dataset] | {"tokens": tokens}}
        scale = original.scale.model_copy(update={"datasets": original.scale.datasets | changed})
        resolver = replace(original, scale=scale)
        if tokens == fewest:
            check_run(resolver, resolver.run(run))
            continue
        with pytest.raises(ConfigError, match=rf"{tokens} is less than one batch of {fewest} tok"):
            check_run(resolver, resolver.run(run))


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"validation_tokens": 65}, None),
        ({"validation_tokens": 64}, r"validation_tokens: 64 is less than one window of 65 tokens"),
        ({"validation_tokens": None, "validation_share": 0.001}, r"tokens: 40 \(validation_share"),
        ({"validation_tokens": None, "tokens": None}, None),
    ],
)
def test_validation_text_needs_at_least_one_window(
    repository: Path, changes: dict[str, float | None], refused: str | None
) -> None:
    original = ConfigResolver.load(repository / "config", {"scale": "smoke"})
    changed = {"stdlib_text": original.scale.datasets["stdlib_text"] | changes}
    scale = original.scale.model_copy(update={"datasets": original.scale.datasets | changed})
    resolver = replace(original, scale=scale)
    if refused is None:
        check_run(resolver, resolver.run("diff"))
        return
    with pytest.raises(ConfigError, match=rf"datasets\.stdlib_text\..*{refused}.*run diff"):
        check_run(resolver, resolver.run("diff"))


def test_a_pretrained_model_is_evaluated_once_and_never_trained(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "gpu", "seeds": 3})
    results = [name for name in plan.artifacts.results("table1") if "open_llama" in name]
    assert results == [
        plan.jobs.layout.evaluation("language_understanding_0shot", "open_llama_3b_v2", 0)
    ]
    assert (
        plan.jobs.manifest("open_llama_3b_v2")
        == plan.jobs.training_file("open_llama_3b_v2", 0)
        == []
    )
    assert plan.jobs.gpus("open_llama_3b_v2", "language_understanding_0shot") == 1
    row = (
        ResolvedArtifact.model_validate_json(
            Path(plan.artifacts.config_file("table1", "table")).read_text()
        )
        .sections[0]
        .rows[0]
    )
    assert row.pretrained and row.facts == {}


@pytest.mark.parametrize("scale", ["gpu", "paper"])
def test_pretrained_models_are_evaluated_with_their_own_tokenizer(
    repository: Path, scale: str
) -> None:
    plan = Plan.load(repository / "config", {"scale": scale, "seeds": 2})
    jobs, suite, run = plan.jobs, "attention_maps_open", "motif_2_6b"
    results = [name for name in plan.artifacts.results("open_weights") if suite in name]
    assert results.count(jobs.layout.evaluation(suite, run, 0)) >= 1
    assert {name.split("/")[-2] for name in results} == {
        "transformer", "diff", "motif_2_6b", "motif_2_12_7b", "phi_4_mini_flash",
    }  # fmt: skip
    corpus = jobs.run("diff").dataset
    assert jobs.measured_manifest(suite, "diff") == [jobs.layout.manifest(corpus)]
    assert jobs.measured_manifest(suite, run) == [jobs.layout.manifest(f"{corpus}_of_{run}")]
    ours, theirs = (jobs.resolver.dataset(name) for name in (corpus, f"{corpus}_of_{run}"))
    assert theirs.tokenizer.kind == "huggingface"
    assert theirs.tokenizer.name == "Motif-Technologies/Motif-2.6B"
    assert theirs.sources == ours.sources and theirs.validation_share == ours.validation_share
    assert ours.tokens is not None and theirs.tokens == ours.validation_budget < ours.tokens
    assert jobs.base_tokenizer(f"{corpus}_of_{run}") == [] and jobs.gpus(run, suite) == 1
    assert jobs.code("evaluate", suite, run) != jobs.code("evaluate", suite, "diff")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("null", "'motif_2_6b' is a pretrained model, and suite 'attention_maps_open' reads"),
        ("recall", "dataset recall is generated, which the external model 'motif_2_6b'"),
        ("finweb_edu", "did you mean 'fineweb_edu'"),
    ],
)
def test_a_pretrained_model_needs_a_suitable_dataset(
    config_folder: Path, dataset: str, message: str
) -> None:
    scale, setting = config_folder / "scales/gpu.yaml", "dataset: fineweb_edu_32k, batch_size: 1"
    text = scale.read_text()
    assert setting in text
    scale.write_text(text.replace(setting, f"dataset: {dataset}, batch_size: 1"))
    rows = config_folder / "artifacts/open_weights.yaml"
    of_ours = ("      - {run: transformer}\n", "      - {run: diff}\n")
    text = rows.read_text()
    for row in of_ours:
        text = text.replace(row, "")
    rows.write_text(text)
    with pytest.raises(ConfigError, match=message) as refusal:
        Plan.load(config_folder, {"scale": "gpu"})
    assert "\n" not in str(refusal.value)


def add_below(file: Path, line: str, new: str) -> None:
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, line + new, 1))


def test_a_row_from_a_folder_depends_on_its_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(repository / "config", tmp_path / "config")
    runs = tmp_path / "config" / "runs.yaml"
    runs.write_text(runs.read_text() + "  mine: {label: Mine, pretrained: ./mine}\n")
    artifacts = tmp_path / "config" / "artifacts"
    mine = "      - {run: mine}\n"
    add_below(artifacts / "table1.yaml", "- {run: diff_3b_1t}\n", mine)
    jobs = Plan.load(tmp_path / "config", {"scale": "smoke"}).jobs  # another target may be built
    with pytest.raises(CheckpointError, match="mine: no such model folder"):
        jobs.weights("mine", 0)
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / "mine" / name).write_text("{}")
    (listing,) = jobs.weights("mine", 0)
    names = ["mine/config.json", "mine/model.safetensors", "mine/tokenizer.json"]
    assert listed(listing) == names
    add_below(artifacts / "table6.yaml", "- {run: diff}\n", mine)
    with pytest.raises(ConfigError, match="'mine' is a pretrained model, which suite 'valid"):
        Plan.load(tmp_path / "config", {"scale": "smoke"})


def listed(listing: str) -> list[str]:
    """Paths in a listing of the user's files."""
    return [json.loads(line)[0] for line in Path(listing).read_text().splitlines()]


def test_benchmarks_of_the_project_win_over_the_scale(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = "language_understanding_0shot"
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    (listing,) = plan.jobs.benchmarks(suite)
    assert all("/items/" in name for name in listed(listing))
    hub = Plan.load(repository / "config", {"scale": "smoke", "benchmarks": "hub"})
    assert hub.jobs.benchmarks(suite) == []
    nowhere = Plan.load(repository / "config", {"benchmarks": str(tmp_path / "nowhere")})
    with pytest.raises(DataError, match=r"benchmarks: .*nowhere: no such folder"):
        nowhere.jobs.benchmarks(suite)


def test_missing_items_stop_only_the_targets_that_read_them(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    items = tmp_path / "xsum" / "test.jsonl"
    items.parent.mkdir()
    items.write_text("{}\n")
    plan = Plan.load(repository / "config", {"benchmarks": str(tmp_path)})
    with pytest.raises(DataError, match=r"gsm8k: holds no test\.jsonl or \.jsonl\.gz; put gsm8k"):
        plan.jobs.benchmarks("mathematics")
    (listing,) = plan.jobs.benchmarks("hallucination_text")
    assert listed(listing) == ["xsum/test.jsonl"]


def test_a_missing_corpus_stops_only_the_targets_that_read_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no data/
    jobs = Plan.load(repository / "config", {"corpus": "local_files"}).jobs
    assert jobs.corpus("recall") == []
    with pytest.raises(
        DataError, match=r"dataset local_files: source files: no file matches 'data'.*\.txt, \.md"
    ) as refusal:
        jobs.corpus("local_files")
    assert "\n" not in str(refusal.value)


def test_a_suite_that_repeats_another_has_its_inputs_and_its_code(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    assert plan.jobs.ngrams_file("quantized_loss", "diff") == plan.jobs.ngrams_file(
        "validation_slices", "diff"
    )
    assert plan.jobs.ngrams_file("quantized_accuracy", "recall_diff") == []
    items = Plan.load(repository / "config", {"scale": "gpu", "benchmarks": "builtin"})
    (theirs,), (own,) = map(items.jobs.benchmarks, ("hellaswag_0shot", "quantized_accuracy"))
    assert listed(own) == listed(theirs)
    assert items.jobs.gpus("diff", "quantized_accuracy") == 1
    codes = {suite: plan.jobs.code("evaluate", suite, "diff") for suite in plan.resolver.suites}
    assert len({codes[name] for name in ("recall", "quantized_accuracy", "quantized_loss")}) == 3
    with pytest.raises(ConfigError, match=r"quantized_loss on run diff .* longer than"):
        longer = _with_suite(plan.resolver, "validation_slices", {"seq_len": 4096})
        jobs = Plan(longer).jobs
        check_evaluation(jobs.pretrained_runs, "quantized_loss", "diff", jobs.run("diff"), "here")


def _with_suite(resolver: ConfigResolver, name: str, changes: dict[str, object]) -> ConfigResolver:
    scale = resolver.scale
    suites = scale.suites | {name: scale.suites.get(name, {}) | changes}
    return replace(resolver, scale=scale.model_copy(update={"suites": suites}))


def test_evaluations_on_the_cpu_request_no_gpu(repository: Path) -> None:
    jobs = Plan.load(repository / "config", {"scale": "paper"}).jobs
    assert jobs.resolver.suite("curvature").device == "cpu"
    assert jobs.gpus("diff", "curvature") == 0
    assert jobs.gpus("diff", "attention_maps") == 1 <= jobs.gpus("diff")
