"""Bounds of each mechanism in the table, and positions in the figure."""

import math
import re

import pytest
import torch
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults
from matplotlib.axes import Axes
from pictures import picture_of

from difftransformer.evaluations.context_rms.bounds import BOUNDS, DERIVED, ORIGIN
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Section
from difftransformer.reporting.table_job import make_table


def text(section: Section, row: str, column: str) -> str:
    cell = section.cell(row, column)
    return "" if cell is None else cell.text


def value(bound: str, n: int, lam: float) -> float:
    """Evaluate the printed text of a bound."""
    for sign, meaning in {"−": "-", "√(": "sqrt(", "√n": "sqrt(n)", "²": "**2"}.items():
        bound = bound.replace(sign, meaning)
    bound = re.sub(r"\|([^|]+)\|", r"abs(\1)", bound)
    names = {"sqrt": math.sqrt, "abs": abs, "max": max, "n": n, "λ": lam}
    return float(eval(bound, {"__builtins__": {}}, names))


def shows_ticks(axes: Axes) -> bool:
    return axes.get_visible() and bool(axes.xaxis.get_tick_params()["labelbottom"])


def test_every_mechanism_has_bounds_and_their_origin(fake: FakeResults) -> None:
    table = make_table(resolved_artifact("v2_context_rms"), load_results(fake.results, SCALE))
    section = table.sections[0]
    origins = {row.run: text(section, row.run, ORIGIN) for row in section.rows}
    assert {row for row, origin in origins.items() if origin == "the post"} == {
        "transformer_gqa", "diff_v2", "gpt_oss_sink", "softmax_off_by_one", "gated_headwise",
        "gated_elementwise",
    }  # fmt: skip
    assert {row for row, origin in origins.items() if origin == "ours"} == {
        "diff_gqa", "diff_v2_no_lambda", "diff_v2_raw_lambda", "dint", "shared_diff", "tda",
    }  # fmt: skip
    assert text(section, "transformer_gqa", BOUNDS) == "1/√n to 1"
    assert text(section, "diff_v2", BOUNDS) == "0 to √2"
    assert text(section, "diff_v2_raw_lambda", BOUNDS) == "0 to ∞"
    derivations = [note for note in section.notes if "our derivation" in note]
    assert len(derivations) == 1 and "DIFF V1, Shared DIFF: a row sums to 1 − λ" in derivations[0]


@pytest.mark.parametrize("variant", ["diff_v1", "shared_diff", "dint"])
def test_no_row_of_weights_exceeds_the_derived_bounds(variant: str) -> None:
    low, high = DERIVED[variant, None].text.split(" to ")
    generator = torch.Generator().manual_seed(0)
    for n in (1, 2, 3, 16):
        for sharpness in (0.0, 3.0, 1000.0):  # equal weights, a few tokens, one token
            logits = sharpness * torch.randn(2, 200, n, n, generator=generator).double()
            first, second = logits.softmax(-1)
            for lam in (-1.24, -0.37, 0.0, 0.2, 0.8, 1.7):
                rows = first[:, -1] - lam * second[:, -1]
                if variant == "dint":
                    rows = rows + lam * first.mean(1)
                norms = rows.norm(dim=-1)
                assert norms.min() >= value(low, n, lam) - 1e-9, (n, sharpness, lam)
                assert norms.max() <= value(high, n, lam) + 1e-9, (n, sharpness, lam)


def test_the_learned_lambda_is_shown_where_there_is_one(fake: FakeResults) -> None:
    table = make_table(resolved_artifact("v2_context_rms"), load_results(fake.results, SCALE))
    section = table.sections[0]
    assert text(section, "transformer_gqa", "lambda") == ""
    assert text(section, "diff_v2_no_lambda", "lambda") == ""
    assert text(section, "diff_gqa", "lambda").startswith("−0.40 to 0.3")
    last = section.cell("diff_gqa", "lambda_l1")
    assert last is not None and last.value == pytest.approx(-0.4) and last.n == 3
    assert section.cell("transformer_gqa", "lambda_l1") is None


def test_only_the_lowest_panels_label_positions(fake: FakeResults) -> None:
    artifact = resolved_artifact("v2_context_rms", "figure")
    (part,) = artifact.sections
    part = part.model_copy(update={"rows": part.rows[:7]})
    artifact = artifact.model_copy(update={"sections": [part]})
    figure = picture_of(artifact, load_results(fake.results, SCALE), fake)
    labelled = [
        index for index, axes in enumerate(figure.axes) if axes.get_xlabel() == "position n"
    ]
    ticked = [index for index, axes in enumerate(figure.axes) if shows_ticks(axes)]
    assert labelled == ticked == [3, 4, 5, 6]
    assert not figure.get_supxlabel()  # which the legend below would cover
