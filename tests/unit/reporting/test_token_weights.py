"""Rows of attention as pictures."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from difftransformer.reporting.token_weights import (
    TokenWeights,
    draw_token_weights,
    label_tokens,
    max_abs_weight,
)

REGIONS = ("before", "answer", "answer", "after")


def rows(**changes: object) -> TokenWeights:
    weights = np.array([[[0.5, -0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]])
    arguments = {"rows": weights, "tokens": ["a", "$b", "c", "d"], "regions": REGIONS} | changes
    return TokenWeights.of(**arguments)  # type: ignore[arg-type]


def test_rows_are_divided_by_their_sizes_and_empty_ones_stay() -> None:
    token_weights = rows()
    np.testing.assert_allclose(token_weights.weights, [[0.25, -0.25, 0.5, 0], [0, 0, 0, 0]])
    assert token_weights.layers == 1 and max_abs_weight([token_weights]) == 0.5


def test_long_prompts_are_drawn_in_fewer_columns_by_their_largest_weight() -> None:
    weights = np.zeros((1, 3, 1000))
    weights[0, 0, 500], weights[0, 1, 999], weights[0, 2, 0] = -0.9, 0.5, 0.1
    axes = plt.figure().subplots()
    draw_token_weights(
        axes, TokenWeights(weights[0], 1, ["x"] * 1000, ["before"] * 1000), 1.0, "answer"
    )
    drawn = axes.images[0].get_array()
    assert drawn is not None and drawn.shape == (3, 160)
    assert [(row.min(), row.max()) for row in drawn] == [(-0.9, 0), (0, 0.5), (0, 0.1)]


@pytest.mark.parametrize("many", [False, True])
def test_words_are_named_or_where_they_are_many_their_regions(many: bool) -> None:
    axes = plt.figure().subplots()
    times = 20 if many else 1
    token_weights = rows(
        rows=np.tile(rows().weights, (1, 1, times)),
        tokens=["a", "$b", "c", "d"] * times,
        regions=sorted(REGIONS * times),
    )
    draw_token_weights(axes, token_weights, 1.0, "answer")
    label_tokens(axes, token_weights, ("answer",), {"before": "Before", "answer": "Answer"})
    words = [tick.get_text() for tick in axes.get_xticklabels()]
    assert words == (["Before", "Answer"] if many else ["a", r"\$b", "c", "d"])
    weights = {tick.get_fontweight() for tick in axes.get_xticklabels()}
    assert weights == ({"normal"} if many else {"normal", "bold"})
