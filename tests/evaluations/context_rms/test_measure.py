"""Context RMS against the parts of a layer, and within the bounds of softmax."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import VOCAB, eval_context, metrics_of, model_config, scorer, sizes

from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.attention_capture import AFTER, BEFORE, capture_head_outputs
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluations.context_rms.measure import measure, value_rms
from difftransformer.evaluations.context_rms.settings import (
    KINDS,
    QUANTILES,
    Suite,
    position_metric,
)
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.transformer import Transformer

LENGTH = 16


def suite(**changes: Any) -> Suite:
    settings = {"seq_len": LENGTH, "batch_size": 3, "positions": 4, "first_position": 1}
    return Suite(kind="context_rms", **(settings | changes))


def context_of(text: Path, **attention: Any) -> EvalContext:
    config = model_config(VOCAB)
    model = Transformer.build(replace(config, attention={"head_dim": 4} | attention), "sdpa", 0)
    return eval_context(scorer(model), PackedDataset.open(text))


def test_softmax_stays_within_the_posts_bounds(text: Path) -> None:
    metrics = metrics_of(measure(suite(), context_of(text, variant="softmax")))
    for n in suite().metric_positions:
        assert metrics[f"weights_p{n}_low"] >= n**-0.5 - 1e-6
        assert metrics[f"weights_p{n}_high"] <= 1 + 1e-6
        for ending in ("", "_low", "_high"):
            assert metrics[f"before_p{n}{ending}"] == metrics[f"after_p{n}{ending}"]
    assert metrics["weights_p1"] == pytest.approx(1)  # one token to attend to
    assert metrics["before_p1"] == pytest.approx(1, abs=0.2)  # one head of a layer's values
    assert (metrics["magnification"], metrics["magnification_max"]) == (1, 1)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["softmax", "diff_v1", "diff_v2"])
def test_captured_head_outputs_equal_the_layers(text: Path, variant: str) -> None:
    """Before the norm: weights times values; after it: the input of the output projection."""
    model = context_of(text, variant=variant).scorer.model
    assert isinstance(model, Transformer)
    heads, captured = model.config.attention.num_heads, {}
    tokens = torch.arange(LENGTH)[None] % 8
    with capture_head_outputs(
        model, heads, lambda layer, kind, out: captured.update({(layer, kind): out})
    ):
        model.hidden_states(tokens)
    layer = model.layers[0]
    x = layer.attention_norm(model.embedding(tokens))
    rope = model._rotary.span(0, LENGTH, x.device)
    values = layer.attention.project(x, rope)[2]
    values = values.repeat_interleave(heads // values.shape[1], dim=1)
    expected = (attention_maps(layer.attention, x, rope) @ values).transpose(1, 2)
    torch.testing.assert_close(captured[0, BEFORE], expected, rtol=1e-4, atol=1e-5)
    projected = layer.attention.o_proj(captured[0, AFTER].flatten(2))
    torch.testing.assert_close(projected, layer.attention(x, rope), rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ({"variant": "softmax"}, None),
        ({"variant": "diff_v1", "lambda_init": -0.9}, -0.9),
        ({"variant": "shared_diff", "lambda_init": 0.6}, 0.6),
        ({"variant": "dint", "lambda_init": -0.3}, -0.3),
        ({"variant": "tda", "lambda_init": 0.5}, 0.5),
        ({"variant": "diff_v2"}, 0.5),
        ({"variant": "diff_v2", "lambda_form": "raw"}, 0.0),
        ({"variant": "diff_v2", "lambda_form": "none"}, None),
    ],
)
def test_the_learned_lambda_of_a_layer(
    text: Path, attention: dict[str, Any], expected: float | None
) -> None:
    context = context_of(text, **attention)
    metrics = metrics_of(measure(suite(), context))
    if expected is None:
        assert metrics["lambda_l0"] is None
    else:
        assert metrics["lambda_l0"] == pytest.approx(expected, abs=0.3)
    layer = context.scorer.model.layers[0].attention
    if attention["variant"] == "diff_v1":  # both maps have all their weight on a single token
        assert metrics["lambda_l0"] == pytest.approx(float(layer.lambda_full()))
        assert metrics["weights_p1"] == pytest.approx(1 - float(layer.lambda_full()))


@torch.no_grad()
def test_a_token_dependent_lambda_is_averaged(text: Path) -> None:
    context = context_of(text, variant="diff_v2")
    layer, inputs_of_layer = context.scorer.model.layers[0].attention, []
    hook = layer.register_forward_pre_hook(lambda _, inputs: inputs_of_layer.append(inputs[0]))
    metrics = metrics_of(measure(suite(), context))
    hook.remove()
    weights = layer.qkv_proj.weight[-layer.num_heads :]
    expected = torch.cat(inputs_of_layer).double() @ weights.T.double()
    assert metrics["lambda_l0"] == pytest.approx(float(expected.sigmoid().mean()), rel=1e-5)


def test_a_norm_magnifies_without_the_factor_behind_it(text: Path) -> None:
    """A norm without gain has outputs of RMS 1, whatever the factor after it."""
    context = context_of(text, variant="diff_v1")
    model = context.scorer.model
    assert isinstance(model, Transformer)
    del model.layers[1:]
    magnifications: list[float] = []
    for factor in (0.1, 5.0):
        model.layers[0].attention.head_scale = factor
        magnifications.append(float(metrics_of(measure(suite(), context))["magnification"] or 0.0))
    assert magnifications[0] == pytest.approx(magnifications[1], rel=1e-5)
    assert magnifications[0] > 1


def test_without_a_norm_nothing_is_magnified(text: Path) -> None:
    metrics = metrics_of(measure(suite(), context_of(text, variant="diff_v1", norm=False)))
    assert (metrics["magnification"], metrics["magnification_max"]) == (1, 1)


def test_batch_size_changes_nothing(text: Path) -> None:
    metrics = metrics_of(measure(suite(), context_of(text, variant="diff_v1")))
    assert metrics["magnification_max"] != 1
    assert metrics["after_p16_low"] == pytest.approx(metrics["after_p16_high"], rel=0.5)
    again = metrics_of(measure(suite(batch_size=1), context_of(text, variant="diff_v1")))
    names = [position_metric(kind, 16, ending) for kind in KINDS for ending in ("", *QUANTILES)]
    assert [metrics[name] for name in names] == pytest.approx([again[name] for name in names])


def test_value_rms_is_cumulative() -> None:
    values = torch.tensor([3.0, 4.0, 0.0]).view(1, 1, 3, 1)
    assert value_rms(values)[0].tolist() == pytest.approx([3, (25 / 2) ** 0.5, (25 / 3) ** 0.5])


def test_magnitudes_have_values_by_window(text: Path) -> None:
    result = measure(suite(), context_of(text, variant="diff_v1"))
    windows = int(result.metrics["tokens"] or 0) // suite().seq_len
    means = {position_metric(kind, n) for kind in KINDS for n in suite().metric_positions}
    assert {*result.per_item} == means | {"magnification"}
    assert {*map(tuple, map(sizes, result.per_item.values()))} == {(("", windows),)}
