import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_configs import SCALE, artifact_resolver, resolved_artifact
from fake_rest import skipped
from fake_results import FakeResults, rewrite
from matplotlib import rc_context, rcParams
from pictures import changed, picture, picture_of
from reporting_fixtures import FIGURES, WRITTEN

from difftransformer.config.artifacts import ENDINGS
from difftransformer.errors import DataError, UserError
from difftransformer.provenance.layout import SUMS
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.drawing import figure_style, row_styles
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.table_job import make_table

REDRAW = """
import os
import sys
from pathlib import Path

from fake_results import FakeResults
from fake_configs import resolved_artifact

from difftransformer.reporting.figure_job import build_figure

os.fsync = lambda descriptor: None  # thousands of files
fake, output = FakeResults(Path(sys.argv[1])).all_results(), Path(sys.argv[2])
for name in sys.argv[3:]:
    artifact = resolved_artifact(name, "figure")
    build_figure(artifact, fake.results[::-1], output / f"{name}.svg")
"""


@pytest.mark.parametrize("name", [*FIGURES, *skipped("figure")])
def test_every_figure_of_the_configuration_is_laid_out(name: str, fake: FakeResults) -> None:
    figure = picture(name, fake)
    with figure_style(name):
        figure.draw_without_rendering()
    assert any(axes.has_data() for axes in figure.axes)


@pytest.mark.parametrize(
    "names", [WRITTEN, pytest.param(FIGURES, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_figure_is_files_of_its_name(
    names: list[str], drawn: Path, fake: FakeResults, tmp_path: Path
) -> None:
    for name in names:
        if not (drawn / f"{name}.svg").exists():
            build_figure(resolved_artifact(name, "figure"), fake.results, tmp_path / name)
    assert sorted(path.name for folder in (drawn, tmp_path) for path in folder.iterdir()) == sorted(
        f"{name}{suffix}" for name in names for suffix in (*ENDINGS["figure"], SUMS)
    )


@pytest.mark.slow
def test_another_process_draws_the_same_bytes(drawn: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run(
        [sys.executable, "-c", REDRAW, str(tmp_path / "tiny"), str(tmp_path / "again"), *WRITTEN],
        check=True,
        env=environment,
    )
    for path in drawn.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
        assert b"<dc:date>" not in path.read_bytes()


def test_settings_of_the_user_change_no_byte(
    drawn: Path, fake: FakeResults, tmp_path: Path
) -> None:
    artifact = resolved_artifact("v2_sinks", "figure")
    with rc_context({"lines.linewidth": 9, "axes.titlesize": 30, "savefig.bbox": "tight"}):
        paths = build_figure(artifact, fake.results, tmp_path / "v2_sinks")
        assert rcParams["lines.linewidth"] == 9
    assert [path.read_bytes() for path in paths] == [
        (drawn / path.name).read_bytes() for path in paths
    ]


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_one_seed_is_drawn_without_an_interval(seeds: tuple[int, ...], fake: FakeResults) -> None:
    figure = picture("table6", fake, seeds)
    artifact, results = resolved_artifact("table6", seeds=seeds), load_results(fake.results, SCALE)
    section = make_table(artifact, results).sections[0]
    panel = next(axes for axes in figure.axes if axes.get_title("left").startswith("Δ AR-Hit"))
    ends = [np.asarray(line.get_xdata()) for line in panel.lines if line.get_linewidth() == 1.6]
    intervals = [end for end in ends if len(end) == 2 and np.isfinite(end).all()]
    expected = {cell.value for cell in section.cells if cell.column == "ar_hit_difference"}
    assert expected <= {x for line in panel.lines for x in line.get_xdata()}
    assert len(intervals) == (len(expected) if len(seeds) > 1 else 0)


@pytest.mark.parametrize(
    ("name", "suite", "metric"),
    [
        ("v2_sinks", "sinks", "uniform"),
        ("v2_context_rms", "context_rms", "after_p8_low"),
        ("figure1", "attention_allocation", "answer"),
        ("figure6", "icl_trec", "chance"),
        ("figure10", "mathematics", "gsm8k_tokens"),
    ],
)
def test_an_undefined_number_is_not_drawn(
    name: str, suite: str, metric: str, fake: FakeResults
) -> None:
    results = changed(load_results(fake.results, SCALE), suite, **{metric: None})
    with pytest.raises(UserError, match=f"{metric} is undefined"):
        picture_of(resolved_artifact(name, "figure"), results, fake)


def test_a_layer_without_attention_has_no_share_of_it(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    without = changed(results, "sinks", share_l0=None)
    drawn_layers = []
    for drawn_results in (results, without):
        (axes,) = picture_of(resolved_artifact("v2_sinks", "figure"), drawn_results, fake).axes
        marked = [line for line in axes.lines if line.get_marker() not in ("None", "")]
        data = [pair for line in marked for pair in zip(*line.get_data(), strict=True)]
        drawn_layers.append({round(float(x)) for x, y in data if np.isfinite(y)})
    assert drawn_layers == [{0, 1}, {1}]


def test_a_missing_history_is_named(small: FakeResults, tmp_path: Path) -> None:
    small.all_results((0,))
    artifact = resolved_artifact("table6", "figure", seeds=(0,))
    (small.root / "runs/diff/0/history.csv").unlink()
    with pytest.raises(DataError, match=r"runs/diff/0/history\.csv: cannot be read.*snakemake"):
        build_figure(artifact, small.results, tmp_path / "out" / "t")
    without_training = [
        p for p in small.results if not str(p).endswith("/runs/diff/0/training.json")
    ]
    with pytest.raises(UserError, match=r"no history of run 'diff' with seed 0.*snakemake"):
        build_figure(artifact, without_training, tmp_path / "out" / "t")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'validation_loss'"),
        ("step,tokens,loss\n1,2,3\n", r"has no column 'validation_loss' \(columns: step, tokens"),
        ("step,tokens,validation_loss\n1,2,three\n", "damaged"),
        ("step,tokens,validation_loss\n1,2,3.0\n", "measured at different tokens"),
    ],
)
def test_a_damaged_history_is_named(
    text: str, message: str, small: FakeResults, tmp_path: Path
) -> None:
    small.all_results((0, 1))
    path = next(p for p in small.histories if str(p).endswith("/runs/diff/1/history.csv"))
    rewrite(path, text)
    artifact = resolved_artifact("table6", "figure", seeds=(0, 1))
    with pytest.raises(DataError, match=message):
        build_figure(artifact, small.results, tmp_path / "t")


def test_tables_need_no_drawing_library() -> None:
    program = (
        "import sys, difftransformer.reporting.table_job, difftransformer.reporting.report_job\n"
        "from importlib import import_module\n"
        "from difftransformer.config.evaluations import evaluations, module_of\n"
        "[import_module(module_of(name, 'report')) for name in evaluations()]\n"
        "heavy = {'matplotlib', 'seaborn', 'pandas', 'torch', 'scipy', 'mlflow'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_two_rows_of_a_crowded_figure_look_alike() -> None:
    rows = {str(number): number if number % 2 else None for number in range(28)}
    look = row_styles(rows)
    assert len({(style.color, style.dash) for style in look.values()}) == len(rows)
    assert len({(style.color, style.marker) for style in look.values()}) == len(rows)


def test_a_row_whose_look_is_taken_gets_another() -> None:
    look = row_styles({"a": 1, "b": 1, "c": None, "d": 0})
    alone = row_styles({str(number): number for number in range(4)})
    assert [look["a"], look["d"]] == [alone["1"], alone["0"]]
    assert [look["b"], look["c"]] == [alone["2"], alone["3"]]


def test_a_mechanism_has_one_color_on_every_page() -> None:
    declared = artifact_resolver()
    mechanisms = ("transformer", "diff", "transformer_halved_heads_groupnorm")
    for name in mechanisms:
        runs = [name, *(f"{task}_{name}" for task in ("recall", "long_recall", "icl", "math"))]
        assert {declared.color(run) for run in runs} == {declared.color(name)}
    assert declared.color("diff_gqa") == declared.color("hot_diff") == declared.color("diff")
    assert declared.color("transformer_gqa") == declared.color("transformer")


@pytest.mark.parametrize("name", list(artifact_resolver().artifacts))
def test_no_two_mechanisms_of_a_section_have_one_look(name: str) -> None:
    for part in artifact_resolver().artifacts[name].sections:
        owners: dict[int, str] = {}
        for row in part.rows:
            number = artifact_resolver().color(row.run)
            owner = row.run if number is None else owners.setdefault(number, row.run)
            assert owner == row.run, (
                f"{part.title}: {row.run} has color {number} of {owner}: give it one of its own, a "
                "`color` in config/runs.yaml"
            )


def test_losses_while_training_say_of_which_part_of_the_validation_text(fake: FakeResults) -> None:
    """The table is of all of it."""
    results = load_results(fake.results, SCALE)
    tokens = results.training("diff", 0).settings["training"]["validation_tokens"]
    curves = picture_of(resolved_artifact("table6", "figure"), results, fake).axes[0]
    assert tokens == 16384
    assert curves.get_title(loc="left") == "Validation loss during training, first 16.4K tokens"
