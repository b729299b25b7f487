"""Cost estimates of the paper scale agree with calculations by hand."""

import shutil
from pathlib import Path

import pytest

from difftransformer.errors import ConfigError
from difftransformer.planning.communication import step_cost
from difftransformer.planning.costs import lines, training_costs
from difftransformer.planning.plan import Plan
from difftransformer.planning.published import published_costs
from difftransformer.training.memory import estimate_memory


@pytest.fixture(scope="module")
def plan(repository: Path) -> Plan:
    return Plan.load(repository / "config", {"scale": "paper"})


def test_gpu_hours_are_flops_over_gpu_throughput(plan: Plan) -> None:
    costs = {cost.run: cost for cost in training_costs(plan, ["table1", "table2"])}
    cost = costs["transformer_3b"]
    d, layers, ffn, vocabulary, length = 3072, 28, 8192, 100288, 4096
    weights = layers * (4 * d * d + 3 * d * ffn) + vocabulary * d
    attention = layers * 2 * d * length  # two products of T x T a layer, whole maps
    flops = 6 * (weights + attention) * 90000 * 1024 * length
    assert cost.tokens == 90000 * 1024 * length
    assert cost.gpu_hours == pytest.approx(flops / (0.4 * 989e12) / 3600, rel=1e-3)
    assert cost.days == pytest.approx(cost.gpu_hours / 8 / 24)
    assert costs["diff_3b"].gpu_hours == pytest.approx(cost.gpu_hours, rel=0.01)
    assert costs["transformer_3b_1t"].gpu_hours == pytest.approx(cost.gpu_hours * 250 / 90)


def test_peak_memory_is_states_plus_activations(plan: Plan) -> None:
    d, layers, ffn, vocabulary, length, micro = 3072, 28, 8192, 100288, 4096, 2
    layer = 4 * d * d + 3 * d * ffn + 2 * d
    outside = vocabulary * d + d
    states = 18 * (layers * layer + outside) / 8 + 10 * (outside + 2 * layer)
    # In bf16: both norms' inputs (4 bytes) and outputs, q, k, v, what attention puts out and a copy
    # of it, gate and up, swish(gate), their product.
    of_layer = micro * length * (22 * d + 8 * ffn)
    logits = 4 * (2 * 8192 * vocabulary + 2 * (vocabulary + micro * length) * d)
    estimate = estimate_memory(plan.jobs.run("transformer_3b"), "cuda")
    assert estimate.activations == pytest.approx(of_layer * (layers + 1))
    assert estimate.peak == pytest.approx(states + of_layer * layers + max(of_layer, logits))


def test_each_layer_is_communicated_three_times_per_step(plan: Plan) -> None:
    slice, machine = plan.jobs.run("transformer_3b"), plan.machine
    d, layers, ffn, vocabulary, length = 3072, 28, 8192, 100288, 4096
    layer, outside = 4 * d * d + 3 * d * ffn + 2 * d, vocabulary * d + d
    for gpus, micro_batches, speed in ((8, 64, 450e9), (64, 8, 400e9), (512, 1, 400e9)):
        cost = step_cost(slice.model, slice.training, gpus, machine)
        # In bf16 weights have 2 bytes when they are gathered, gradients 4 when they are reduced.
        sent = (8 * layers * layer + 6 * outside) * (gpus - 1) / gpus
        hops = (3 * layers + 2) * (gpus - 1) * 5e-6
        assert cost.communication == pytest.approx(micro_batches * (hops + sent / speed))
        weights = layers * (layer - 2 * d) + vocabulary * d
        flops = 6 * (weights + layers * 2 * d * length) * 4 * 2**20 / gpus
        assert cost.computation == pytest.approx(flops / (0.4 * 989e12))
    large = plan.jobs.run("transformer_size_13_1b")
    assert step_cost(large.model, large.training, 512, machine).sequences == 512


def test_host_memory_includes_a_checkpoint_copy(plan: Plan) -> None:
    d, layers, ffn, vocabulary = 3072, 28, 8192, 100288
    parameters = layers * (4 * d * d + 3 * d * ffn + 2 * d) + vocabulary * d + d
    assert plan.jobs.host_mb("transformer_3b") == pytest.approx(8000 + 24e-6 * parameters, abs=1)
    assert plan.jobs.host_mb("recall_transformer") == 16_000


@pytest.mark.slow
def test_no_model_is_trained_twice_and_all_fit_in_memory(plan: Plan) -> None:
    artifacts = plan.requested_artifacts(["all"])
    plan.require_room(plan.trainings(artifacts))
    costs = training_costs(plan, artifacts)
    alike = [
        plan.jobs.run(cost.run).model_copy(update={"run": ""}).model_dump_json() for cost in costs
    ]
    assert len(set(alike)) == len(alike)
    assert all(cost.memory_gib < 78 for cost in costs)
    output = "\n".join(lines(plan, artifacts))
    assert "transformer_3b " in output and "communication per step" in output
    assert "6 pretrained models" in output


def test_runs_that_exceed_gpu_memory_are_refused_before_any_job(
    repository: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(repository / "config", tmp_path / "config"))
    scale = folder / "scales" / "paper.yaml"
    checkpointed = "activation_checkpointing: layer}"
    text = scale.read_text().replace(f"world_size: 8, {checkpointed}", checkpointed)
    long = "seq_len: 16384\n      batch_size: 64  "
    assert long in text
    scale.write_text(text.replace(long, long.replace("16384", "65536")))
    plan = Plan.load(folder, {"scale": "paper"})
    prefix = r"paper\.yaml: run "
    what = (
        prefix + r"transformer_size_13_1b needs 2\d\d GiB on each of its 1 GPUs, .* has 78: raise "
    )
    with pytest.raises(ConfigError, match=what + r"training\.world_size \(1\)$"):
        plan.require_room(plan.trainings(["figure3a"]))
    with pytest.raises(ConfigError, match=prefix + r"adapted_long_.*: lower training\.micro_batch"):
        plan.require_room(plan.trainings(["dex_figure10"]))
    plan.require_room(plan.trainings(["table6"]))  # what is not asked for stops nobody


def test_validation_share_counts_towards_disk_space(repository: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(repository / "config", tmp_path / "config"))
    scale = folder / "scales" / "paper.yaml"
    own = "fineweb_edu: {tokens: 10500000000"
    half = own + ", validation_tokens: null, validation_share: 0.5"
    scale.write_text(scale.read_text().replace(own, half))
    total, *_ = lines(Plan.load(folder, {"scale": "paper"}), ["table6"])
    assert f", {4 * 1.5 * 10.5e9 / 2**30:.0f} GiB of tokens" in total


def test_a_pretrained_base_is_costed_by_its_sizes(repository: Path) -> None:
    attention = {"variant": "softmax", "num_heads": 24, "num_kv_heads": 8, "head_dim": 128}
    sizes = {
        "vocab_size": 128256, "d_model": 3072, "num_layers": 28, "ffn_dim": 8192,
        "max_positions": 131072, "tie_embeddings": True, "attention": attention,
    }  # fmt: skip
    base = {"name": "meta-llama/Llama-3.2-3B", "revision": "main", "sizes": sizes}
    plan = Plan.load(repository / "config", {"scale": "paper", "pretrained": base})
    artifacts = plan.requested_artifacts(["dex_table1"])
    plan.require_room(plan.trainings(artifacts))
    costs = {cost.run: cost for cost in training_costs(plan, artifacts)}
    parameters = 3_212_749_824  # 3.21B by its model card
    cost = costs["adapted_dex"]
    assert cost.parameters == parameters and cost.tokens == 846 * 2**20
    products = 28 * (3072 * (5120 + 3072) + 3 * 3072 * 8192) + 128256 * 3072
    flops = 6 * (products + 28 * 2 * 3072 * 2048) * cost.tokens
    assert cost.gpu_hours == pytest.approx(flops / (0.4 * 989e12) / 3600)
    (own,) = published_costs(plan, artifacts, plan.machine)
    assert own.download_gib == pytest.approx(2 * parameters / 2**30)
    assert own.tokens == plan.resolver.suite("language_understanding_dex").planned_tokens
    assert own.unknown == ()
    assert own.gpu_hours == pytest.approx(2 * parameters * own.tokens / (0.4 * 989e12) / 3600)


def test_a_scale_without_a_machine_is_one_line(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    with pytest.raises(ConfigError, match=r"tiny\.yaml: no `machine` for estimates"):
        training_costs(plan, ["table6"])
