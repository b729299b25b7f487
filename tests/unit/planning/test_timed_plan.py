"""Benchmarked models and the sizes they are matched to."""

import shutil
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from difftransformer.config.evaluations import BenchmarkConfig
from difftransformer.config.timing import TRAINED_SIZES
from difftransformer.errors import ConfigError
from difftransformer.evaluations.decoding.settings import MODEL
from difftransformer.models.sizes import count_parameters, training_flops
from difftransformer.planning.plan import Plan


def timed(plan: Plan, evaluation: str) -> Any:
    """The slice as its job reads it; its settings are typed by the evaluation."""
    file = Path(plan.artifacts.timing_file(evaluation))
    return BenchmarkConfig.model_validate_json(file.read_bytes())


def test_rows_of_table_7_differ_only_in_attention(plan: Plan) -> None:
    slice = timed(plan, "throughput")
    assert set(plan.artifacts.available["table7"].runs()) <= set(slice.models)
    for shape, sizes in slice.config.shapes.items():
        models = [slice.models[row][shape] for row in plan.artifacts.available["table7"].runs()]
        others = [asdict(model) | {"attention": None} for model in models]
        assert all(model == others[0] for model in others)
        assert models[0].max_positions == sizes.seq_len
        widths = {model.attention.head_dim for model in models}
        assert widths == {min(widths), 2 * min(widths)}  # halved heads are twice as wide
    assert plan.artifacts.results("table7") == [plan.jobs.layout.timings("throughput")]
    assert plan.owned_trainings("table7") == [] and plan.artifacts.histories("table7") == []
    assert plan.jobs.timing_gpus("throughput") == int(plan.jobs.scale in ("small", "gpu", "paper"))


def test_benchmarks_of_wall_clock_time_take_all_cores(plan: Plan) -> None:
    shared = {"smoke": {"throughput", "decoding"}, "tiny": {"throughput"}}.get(
        plan.jobs.scale, set()
    )
    for name in ("throughput", "decoding"):
        assert plan.jobs.timing_threads(name, cores=8) == (1 if name in shared else 8)


def test_variants_are_timed_with_the_sizes_of_their_runs(plan: Plan) -> None:
    slice = timed(plan, "throughput")
    trained = {
        row: sizes[TRAINED_SIZES] for row, sizes in slice.models.items() if TRAINED_SIZES in sizes
    }
    is_timed = slice.config.trained_sizes is not None
    assert is_timed == (plan.jobs.scale != "paper")
    rows = {row.run for part in plan.artifacts.available["variants"].sections for row in part.rows}
    assert set(trained) == (rows if is_timed else set())
    assert all(model.ffn_dim == plan.jobs.run(row).model.ffn_dim for row, model in trained.items())
    assert all(
        model.max_positions == slice.config.trained_sizes.seq_len for model in trained.values()
    )
    assert (
        plan.jobs.layout.timings("throughput") in plan.artifacts.results("variants")
    ) == is_timed


def test_rows_of_the_matched_section_have_equal_flops(plan: Plan) -> None:
    matched = plan.artifacts.available["variants"].sections[1]
    assert "FLOPs" in matched.title
    first, *others = (plan.jobs.run(row.paper or row.run) for row in matched.rows)  # no stand-ins
    wanted = training_flops(first.model, first.training.seq_len)
    for run in others:
        step = 8 * 3 * run.model.d_model * run.model.num_layers  # ffn_dim is a multiple of 8
        assert abs(training_flops(run.model, run.training.seq_len) - wanted) <= 6 * step / 2, run


def test_decoding_rows_have_equal_parameter_counts(plan: Plan) -> None:
    slice = timed(plan, "decoding")
    runs = (plan.artifacts.available[name].runs() for name in ("v2_decoding", "dex_figure12"))
    assert list(slice.models) == list(dict.fromkeys(chain.from_iterable(runs)))
    models = {row: sizes[MODEL] for row, sizes in slice.models.items()}
    first, *others = models.values()
    for row, model in models.items():
        entry = plan.resolver.entry(row).match
        step = 3 * model.d_model * model.num_layers * (8 if entry else 0)
        assert abs(count_parameters(model) - count_parameters(first)) <= max(
            step / 2, 0.001 * count_parameters(first)
        )
    assert all(model.ffn_dim < first.ffn_dim for model in others if "v2" in model.attention.variant)
    longest = max(slice.config.contexts) + slice.config.new_tokens
    assert {model.max_positions for model in models.values()} == {longest}


def test_a_scale_without_timings_has_no_table_7(repository: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    shutil.copytree(repository / "config", config)
    file = config / "scales" / "smoke.yaml"
    raw = yaml.safe_load(file.read_text())
    raw["timings"]["throughput"]["shapes"]["short"]["model"] = {"attention": {"head_dim": 7}}
    file.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match=r"timings\.throughput\.shapes\.short: row transformer"):
        Plan.load(config, {"scale": "smoke"})
    del raw["timings"]["throughput"]
    file.write_text(yaml.safe_dump(raw))
    assert "table7" not in Plan.load(config, {"scale": "smoke"}).artifacts.available
