"""What is decided for GPUs before anything runs on one; there is none here."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from difftransformer.errors import BackendError
from difftransformer.models.kernels import (
    by_card,
    choose_backend,
    eager,
    flash,
    fused,
    kernel,
    recorded,
    sdpa,
)
from difftransformer.models.kernels.fused import tiles
from difftransformer.models.kernels.fused.tiles import Kernel, Tile, kernel_for, tile_for, trying
from difftransformer.models.layers import layer_class

CARD = "NVIDIA H200"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A pretended card, which tests may change."""
    found = types.SimpleNamespace(
        name=CARD, major=9, minor=0, shared_memory_per_block_optin=227 * 1024
    )
    for name, told in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: found.name,
        "get_device_capability": lambda *_: (found.major, found.minor),
        "get_device_properties": lambda *_: found,
    }.items():
        monkeypatch.setattr(torch.cuda, name, told)
    tiles._on_card.cache_clear()
    yield found
    tiles._on_card.cache_clear()


def test_fused_runs_on_a_card_in_half_precision(card: types.SimpleNamespace) -> None:
    assert choose_backend("fused", "cuda", "bf16") == "fused"
    with pytest.raises(BackendError, match="half precision only; set precision bf16, or take sdpa"):
        choose_backend("fused", "cuda", "fp32")


def test_fused_refuses_a_card_that_is_too_old(card: types.SimpleNamespace) -> None:
    card.name, card.major, card.minor = "Tesla V100", 7, 0
    with pytest.raises(BackendError, match=r"capability 8\.0, Tesla V100 has less; take sdpa"):
        choose_backend("fused", "cuda", "bf16")


def test_fused_refuses_a_machine_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"Triton is not installed .*; take sdpa"):
        choose_backend("fused", "cuda", "bf16")


@pytest.mark.skipif(fused.interpreted(), reason="Triton's interpreter runs on a CPU")
def test_fused_refuses_a_cpu() -> None:
    with pytest.raises(BackendError, match="needs an NVIDIA GPU and the device is cpu; take sdpa"):
        choose_backend("fused", "cpu", "bf16")
    q = torch.zeros(1, 2, 3, 16, dtype=torch.bfloat16)
    with pytest.raises(BackendError, match=r"got torch\.bfloat16.* on cpu; set precision bf16 and"):
        fused.attention(q, q, q, scale=1.0, mask=None)


def test_kernels_and_their_compiler_are_imported_when_one_runs() -> None:
    code = "import sys, difftransformer.models.kernels; sys.exit('triton' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("maps", "head_dim", "value_dim", "blocks"),
    [
        (2, 64, 128, (64, 128)),
        (2, 96, 192, (128, 256)),
        (2, 4, 8, (16, 32)),
        (1, 24, 24, (32, 32)),
        (1, 64, 128, (64, 128)),
        (1, 96, 64, (128, 128)),
    ],
)
def test_widths_are_rounded_up_to_blocks(
    maps: int, head_dim: int, value_dim: int, blocks: tuple[int, int]
) -> None:
    found = kernel_for("forward", maps, head_dim, value_dim)
    assert found == Kernel("forward", maps, *blocks)
    assert str(found) in tiles.shipped("90")


@pytest.mark.parametrize(("maps", "head_dim", "value_dim"), [(1, 256, 256), (2, 32, 256)])
def test_widths_without_a_kernel_are_refused(maps: int, head_dim: int, value_dim: int) -> None:
    with pytest.raises(BackendError, match=f"no kernel for head_dim {head_dim} with .*; take sdpa"):
        kernel_for("forward", maps, head_dim, value_dim)


def test_a_card_takes_the_first_tile_that_fits_it(card: types.SimpleNamespace) -> None:
    wanted, device = Kernel("forward", 2, 64, 128), torch.device("cuda", 0)
    first, *_ = tiles.shipped("90")[str(wanted)]
    assert tile_for(wanted, device) == Tile(*first[:-1])
    tiles._on_card.cache_clear()
    card.major, card.minor, card.shared_memory_per_block_optin = 8, 9, 99 * 1024
    taken = tile_for(wanted, device)
    small = [one for one in tiles.shipped("80")[str(wanted)] if one[-1] <= 99 * 1024]
    assert taken == Tile(*small[0][:-1])
    tiles._on_card.cache_clear()
    card.shared_memory_per_block_optin = 1024
    with pytest.raises(BackendError, match=r"no tile of forward/2/64/128 for NVIDIA H200 with"):
        tile_for(wanted, device)


def test_a_card_takes_what_was_measured_on_it(
    card: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.use_deterministic_algorithms(False)
    wanted, device = Kernel("keys_atomic", 2, 64, 128), torch.device("cuda", 0)
    ways = {"backward/2/64/128": "atomic", "backward/1/64/64": "together"}
    table = {CARD: {"tiles": {str(wanted): [32, 64, 4, 1]}, "backward": ways}}
    monkeypatch.setattr(tiles, "measured", lambda: table)
    assert tile_for(wanted, device) == Tile(32, 64, 4, 1)
    assert tiles.way_for(wanted, device) == "atomic"
    assert tiles.way_for(wanted._replace(masked=True), device) == "atomic"
    torch.use_deterministic_algorithms(True)
    try:
        assert tiles.way_for(wanted, device) == "together"
    finally:
        torch.use_deterministic_algorithms(False)
    others = ((2, 128, 256, "apart"), (2, 32, 64, "together"), (1, 64, 64, "together"))
    for *shape, guess in others:
        assert tiles.way_for(Kernel("queries", *shape), device) == guess


def test_what_is_tried_ends_with_its_context() -> None:
    wanted, device = Kernel("forward", 2, 64, 128), torch.device("cpu")
    with trying({wanted: Tile(1, 2, 3, 4)}, way="atomic"):
        assert tile_for(wanted, device) == Tile(1, 2, 3, 4)
        assert tiles.way_for(wanted, device) == "atomic"
    assert tile_for(wanted, device) == tiles.INTERPRETED
    assert tiles.way_for(wanted, device) == "together"


def test_auto_on_a_card_is_what_the_table_says(
    card: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_backend("auto", "cuda", "bf16") == "sdpa"
    with pytest.raises(BackendError, match=f"its table lacks {CARD} in bf16; take auto"):
        choose_backend("by_card", "cuda", "bf16")
    steps: dict[str, Any] = {
        "attention": [[64, [[1, "sdpa"]]]],
        "attention_with_lse": [[64, [[1, "sdpa"]]]],
        "differential_attention": [[64, [[1, "sdpa"], [2048, "fused"]]], [128, [[1, "fused"]]]],
    }
    monkeypatch.setitem(by_card._TABLE, CARD, {"bf16": steps})
    assert choose_backend("auto", "cuda", "bf16") == "by_card"
    assert choose_backend("auto", "cuda", "fp32") == "sdpa"
    assert recorded("by_card", "bf16") == {"backend": "by_card", "backend_by_call": steps}
    assert recorded("sdpa", "bf16") == {"backend": "sdpa"}
    asked = ((32, 5), (64, 2047), (64, 2048), (65, 5), (128, 9000), (256, 9000))
    found = [by_card.fastest(CARD, "bf16", "differential_attention", *one) for one in asked]
    assert found == ["sdpa", "sdpa", "fused", "fused", "fused", "fused"]
    steps["attention"] = [[64, [[1, "flash_attn"]]]]
    monkeypatch.setattr(flash, "generation", lambda: None)
    assert choose_backend("auto", "cuda", "bf16") == "sdpa"
    with pytest.raises(BackendError, match=r"its table has flash_attn for .* is not installed"):
        choose_backend("by_card", "cuda", "bf16")


def test_a_layer_on_a_card_goes_by_the_table_whatever_its_weights(
    card: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under autocast its calls are in half precision."""
    steps = {name: [[64, [[1, "sdpa"]]]] for name in by_card.OPERATIONS}
    monkeypatch.setitem(by_card._TABLE, CARD, {"bf16": steps})
    layer = layer_class("softmax")(64, num_heads=4)
    assert layer.backend == "cpu_dispatch"
    del layer.o_proj
    weight = types.SimpleNamespace(is_meta=False, device=torch.device("cuda"), dtype=torch.float32)
    layer.__dict__["o_proj"] = types.SimpleNamespace(weight=weight)
    layer._settle_backend()
    assert layer.backend == "by_card"


def test_by_card_calls_what_the_table_has(
    card: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name: [[64, [[1, "fused"], [4, "eager"]]]] for name in by_card.OPERATIONS}
    monkeypatch.setitem(by_card._TABLE, CARD, {"fp32": steps})
    q, v = torch.randn(1, 2, 5, 16), torch.randn(1, 1, 5, 32)
    given: dict[str, Any] = {"scale": 0.3, "mask": None}
    lam = torch.tensor(0.3)
    for name, inputs in {
        "attention": (q, q, q),
        "attention_with_lse": (q, q, q),
        "differential_attention": (q, q, v, lam),
    }.items():
        found = getattr(kernel("by_card"), name)(*inputs, **given)
        torch.testing.assert_close(found, getattr(eager, name)(*inputs, **given), rtol=0, atol=0)
    with pytest.raises(BackendError, match="backend fused computes"):
        by_card.attention(q[:, :, :3], q[:, :, :3], q[:, :, :3], **given)


@pytest.mark.parametrize(
    ("d", "e", "dtype"),
    [(8, 8, torch.float32), (16, 24, torch.float32), (16, 64, torch.float32), (16, 16, torch.half)],
)
def test_what_was_not_measured_is_left_to_sdpa(
    d: int, e: int, dtype: torch.dtype, card: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name: [[64, [[1, "fused"]]]] for name in by_card.OPERATIONS}
    monkeypatch.setitem(by_card._TABLE, CARD, {"fp32": steps})
    q, v = torch.randn(1, 2, 5, d, dtype=dtype), torch.randn(1, 2, 5, e, dtype=dtype)
    found = by_card.attention(q, q, v, scale=0.3, mask=None)
    wanted = sdpa.attention(q, q, v, scale=0.3, mask=None)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_the_table_is_read_inside_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = [[16, [[1, "sdpa"], [4, "eager"]]], [32, [[1, "sdpa"]]]]
    monkeypatch.setitem(by_card._TABLE, CARD, {"fp32": {"attention": operation}})
    monkeypatch.setattr(by_card, "_cards", [CARD])
    q = torch.randn(1, 2, 5, 16)
    compiled = torch.compile(by_card.attention, backend="eager", fullgraph=True)
    found = compiled(q, q, q, scale=0.3, mask=None)
    wanted = eager.attention(q, q, q, scale=0.3, mask=None)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_a_way_backward_has_its_masked_kernels_too() -> None:
    for part in ("80", "90", "100"):
        for maps, d, e in ((2, 64, 128), (2, 128, 256), (1, 64, 64)):
            for way in tiles.ways_shipped(part, maps, d, e):
                for name in tiles.BACKWARD[way]:
                    assert tiles.shipped(part)[f"{name}/{maps}/{d}/{e}/masked"], (part, way)
            assert tiles.ways_shipped(part, maps, d, e)


def test_the_table_in_git_names_what_there_is() -> None:
    table = json.loads(by_card.TABLE.read_text())
    for by_precision in table.values():
        for operations in by_precision.values():
            assert set(operations) == set(by_card.OPERATIONS)
            for by_width in operations.values():
                assert by_width == sorted(by_width)
                for _, steps in by_width:
                    assert steps[0][0] == 1
                    assert all(kernel(name) for _, name in steps)


def test_nothing_measured_lies_outside_of_git() -> None:
    for path in (tiles.MEASURED, tiles.COMPILED, by_card.TABLE):
        assert path.is_file() and Path(fused.__file__).parents[1] in path.parents
