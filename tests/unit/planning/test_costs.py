"""What an expensive scale costs, reckoned again by hand."""

import shutil
from pathlib import Path

import pytest

from difftransformer.errors import ConfigError
from difftransformer.planning.costs import lines, training_costs
from difftransformer.planning.plan import Plan


@pytest.fixture(scope="module")
def plan(repository: Path) -> Plan:
    return Plan.load(repository / "config", {"scale": "paper"})


def test_hours_are_operations_over_what_the_cards_do(plan: Plan) -> None:
    found = {one.run: one for one in training_costs(plan, plan.asked(["all"]))}
    one = found["transformer_3b"]
    d, layers, ffn, vocabulary, length = 3072, 28, 8192, 100288, 4096
    weights = layers * (4 * d * d + 3 * d * ffn) + vocabulary * d
    attention = layers * 2 * d * length  # two products of T x T a layer, whole maps
    flops = 6 * (weights + attention) * 90000 * 1024 * length
    assert one.tokens == 90000 * 1024 * length
    assert one.gpu_hours == pytest.approx(flops / (0.4 * 989e12) / 3600, rel=1e-3)
    assert one.days == pytest.approx(one.gpu_hours / 8 / 24)
    assert found["diff_3b"].gpu_hours == pytest.approx(one.gpu_hours, rel=0.01)
    assert found["transformer_3b_1t"].gpu_hours == pytest.approx(one.gpu_hours * 250 / 90)


def test_no_model_is_trained_twice_and_all_fit(plan: Plan) -> None:
    asked = plan.asked(["all"])
    slices = [plan.jobs.run(one.run) for one in training_costs(plan, asked)]
    alike = [one.model_copy(update={"run": ""}).model_dump_json() for one in slices]
    assert len(set(alike)) == len(alike)
    said = list(lines(plan, asked))
    assert "does not fit" not in "".join(said)
    assert any("transformer_3b " in line for line in said)


def test_what_does_not_fit_says_what_to_change(repository: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(repository / "config", tmp_path / "config"))
    scale = folder / "scales" / "paper.yaml"
    scale.write_text(scale.read_text().replace("{lr: 7.5e-5, world: 8}", "{lr: 7.5e-5}"))
    plan = Plan.load(folder, {"scale": "paper"})
    said = [line for line in lines(plan, plan.asked(["all"])) if "does not fit" in line]
    assert len(said) == 4 and all("raise training.world" in line for line in said)


def test_a_scale_without_a_machine_is_one_line(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    with pytest.raises(ConfigError, match=r"tiny\.yaml: no `machine` to reckon with"):
        training_costs(plan, ["table6"])
