"""Parameters of a variant that are not matrices: where they start, and their limits."""

import torch
from small_layers import build, inputs

HEADS = {"head_dim": 4, "num_heads": 4, "num_kv_heads": 2}


def test_lambdas_of_tda_start_as_told_and_count_as_zero_to_one() -> None:
    options = {"variant": "tda", "beta": 0.3, "norm_eps": 0.01, "lambda_init": 0.3, **HEADS}
    layer = build(options, "eager")
    assert torch.equal(layer.lambdas, torch.full((4,), 0.3))
    x, rope = inputs(layer, 9)
    outputs = []
    for lambdas in ([-0.7, 0.0, 1.0, 1.6], [0.0, 0.0, 1.0, 1.0]):
        with torch.no_grad():
            layer.lambdas.copy_(torch.tensor(lambdas))
        outputs.append(layer(x, rope))
        torch.testing.assert_close(outputs[-1], layer.reference(x, rope), rtol=1e-4, atol=1e-4)
    assert torch.equal(*outputs)


def test_sinks_start_with_the_spread_that_is_told() -> None:
    narrow, wide = (
        build({"variant": "gpt_oss_sink", "sink_std": std, **HEADS}, "eager").sinks
        for std in (0.02, 0.2)
    )
    torch.testing.assert_close(10 * narrow, wide)
    assert wide.abs().max() > 0.02


def test_lambda_vectors_of_diff_v1_start_with_a_tenth() -> None:
    layer = build({"variant": "diff_v1", **HEADS | {"head_dim": 128}}, "eager")
    vectors = [layer.lambda_q1, layer.lambda_k1, layer.lambda_q2, layer.lambda_k2]
    assert abs(float(torch.cat(vectors).detach().std()) - 0.1) < 0.02
    assert len({float(one.detach()[0]) for one in vectors}) == 4
