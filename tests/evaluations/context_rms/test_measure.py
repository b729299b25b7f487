"""Context magnitudes equal what the layers' own parts give, and keep their bounds."""

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
from difftransformer.evaluations.context_rms.settings import KINDS, QUANTILES, Suite, place_metric
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.transformer import Transformer

LENGTH = 16


def suite(**changes: Any) -> Suite:
    known = {"seq_len": LENGTH, "batch_size": 3, "positions": 4, "first_position": 1}
    return Suite(kind="context_rms", **(known | changes))


def measured(text: Path, **attention: Any) -> EvalContext:
    config = model_config(VOCAB)
    known = {"head_dim": 4} | attention
    model = Transformer.build(replace(config, attention=known), "sdpa", 0)
    return eval_context(scorer(model), PackedDataset.open(text))


def test_softmax_stays_within_the_posts_bounds(text: Path) -> None:
    context = measured(text, variant="softmax")
    found = metrics_of(measure(suite(), context))
    for place in suite().places:
        assert found[f"weights_p{place}_low"] >= place**-0.5 - 1e-6
        assert found[f"weights_p{place}_high"] <= 1 + 1e-6
        for name in ("", "_low", "_high"):
            assert found[f"before_p{place}{name}"] == found[f"after_p{place}{name}"]
    assert found["weights_p1"] == pytest.approx(1)  # one token to attend to
    assert found["before_p1"] == pytest.approx(1, abs=0.2)  # one head of a layer's values
    assert (found["magnification"], found["magnification_top"]) == (1, 1)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["softmax", "diff_v1", "diff_v2"])
def test_heads_are_those_of_the_layer(text: Path, variant: str) -> None:
    """Before the norm is what weights and values give; after it what the projection gets."""
    found = measured(text, variant=variant)
    model = found.scorer.model
    assert isinstance(model, Transformer)
    heads, seen = model.config.attention.num_heads, {}
    tokens = torch.arange(LENGTH)[None] % 8
    with capture_head_outputs(
        model, heads, lambda layer, kind, out: seen.update({(layer, kind): out})
    ):
        model.hidden_states(tokens)
    layer = model.layers[0]
    x = layer.attention_norm(model.embedding(tokens))
    rope = model._rotary.span(0, LENGTH, x.device)
    values = layer.attention.project(x, rope)[2]
    values = values.repeat_interleave(heads // values.shape[1], dim=1)
    expected = (attention_maps(layer.attention, x, rope) @ values).transpose(1, 2)
    torch.testing.assert_close(seen[0, BEFORE], expected, rtol=1e-4, atol=1e-5)
    projected = layer.attention.o_proj(seen[0, AFTER].flatten(2))
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
    found = measured(text, **attention)
    metrics = metrics_of(measure(suite(), found))
    if expected is None:
        assert metrics["lambda_l0"] is None
    else:
        assert metrics["lambda_l0"] == pytest.approx(expected, abs=0.3)
    layer = found.scorer.model.layers[0].attention
    if attention["variant"] == "diff_v1":  # of a single token both maps have all the weight
        assert metrics["lambda_l0"] == pytest.approx(float(layer.lambda_full()))
        assert metrics["weights_p1"] == pytest.approx(1 - float(layer.lambda_full()))


@torch.no_grad()
def test_a_lambda_for_each_token_is_its_mean(text: Path) -> None:
    found = measured(text, variant="diff_v2")
    layer, seen = found.scorer.model.layers[0].attention, []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    metrics = metrics_of(measure(suite(), found))
    hook.remove()
    weights = layer.qkv_proj.weight[-layer.num_heads :]
    expected = torch.cat(seen).double() @ weights.T.double()
    assert metrics["lambda_l0"] == pytest.approx(float(expected.sigmoid().mean()), rel=1e-5)


def test_a_norm_magnifies_without_the_factor_behind_it(text: Path) -> None:
    """A norm without gain puts out an RMS of 1, whatever it is multiplied by then."""
    found = measured(text, variant="diff_v1")
    model = found.scorer.model
    assert isinstance(model, Transformer)
    del model.layers[1:]
    sizes: list[float] = []
    for factor in (0.1, 5.0):
        model.layers[0].attention.head_scale = factor
        sizes.append(float(metrics_of(measure(suite(), found))["magnification"] or 0.0))
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-5) and sizes[0] > 1


def test_without_a_norm_nothing_is_magnified(text: Path) -> None:
    found = metrics_of(measure(suite(), measured(text, variant="diff_v1", norm=False)))
    assert (found["magnification"], found["magnification_top"]) == (1, 1)


def test_a_norm_magnifies_and_a_batch_changes_nothing(text: Path) -> None:
    found = metrics_of(measure(suite(), measured(text, variant="diff_v1")))
    assert found["magnification_top"] != 1
    assert found["after_p16_low"] == pytest.approx(found["after_p16_high"], rel=0.5)
    again = metrics_of(measure(suite(batch_size=1), measured(text, variant="diff_v1")))
    names = [place_metric(kind, 16, ending) for kind in KINDS for ending in ("", *QUANTILES)]
    assert [found[name] for name in names] == pytest.approx([again[name] for name in names])


def test_values_are_taken_up_to_a_position() -> None:
    values = torch.tensor([3.0, 4.0, 0.0]).view(1, 1, 3, 1)
    assert value_rms(values)[0].tolist() == pytest.approx([3, (25 / 2) ** 0.5, (25 / 3) ** 0.5])


def test_sizes_are_known_by_window(text: Path) -> None:
    found = measure(suite(), measured(text, variant="diff_v1"))
    windows = int(found.metrics["tokens"] or 0) // suite().seq_len
    means = {place_metric(kind, place) for kind in KINDS for place in suite().places}
    assert {*found.per_item} == means | {"magnification"}
    assert {*map(tuple, map(sizes, found.per_item.values()))} == {(("", windows),)}
