"""What is decided for GPUs before anything runs on one; there is none here."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from difftransformer.errors import BackendError
from difftransformer.models.kernels import choose_backend, fused
from difftransformer.models.kernels.fused import tiles
from difftransformer.models.kernels.fused.tiles import Kernel, Tile, kernel_for, tile_for, trying
from difftransformer.models.layers import layer_class

CARD = "NVIDIA H200"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A pretended card, which tests may change."""
    actual = types.SimpleNamespace(
        name=CARD, major=9, minor=0, shared_memory_per_block_optin=227 * 1024
    )
    for name, function in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: actual.name,
        "get_device_capability": lambda *_: (actual.major, actual.minor),
        "get_device_properties": lambda *_: actual,
    }.items():
        monkeypatch.setattr(torch.cuda, name, function)
    tiles._tile_on_gpu.cache_clear()
    yield actual
    tiles._tile_on_gpu.cache_clear()


def test_fused_runs_on_a_gpu_in_half_precision(card: types.SimpleNamespace) -> None:
    assert choose_backend("fused", "cuda", "bf16") == "fused"
    with pytest.raises(BackendError, match="half precision only; set precision bf16, or use sdpa"):
        choose_backend("fused", "cuda", "fp32")


def test_fused_raises_on_an_old_gpu(card: types.SimpleNamespace) -> None:
    card.name, card.major, card.minor = "Tesla V100", 7, 0
    with pytest.raises(BackendError, match=r"capability 8\.0, Tesla V100 has less; use sdpa"):
        choose_backend("fused", "cuda", "bf16")


def test_fused_raises_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"Triton is not installed .*; use sdpa"):
        choose_backend("fused", "cuda", "bf16")


@pytest.mark.skipif(fused.interpreted(), reason="Triton's interpreter runs on a CPU")
def test_fused_raises_on_a_cpu() -> None:
    with pytest.raises(BackendError, match="needs an NVIDIA GPU and the device is cpu; use sdpa"):
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
    actual = kernel_for("forward", maps, head_dim, value_dim)
    assert actual == Kernel("forward", maps, *blocks)
    assert str(actual) in tiles.shipped("90")


@pytest.mark.parametrize(("maps", "head_dim", "value_dim"), [(1, 256, 256), (2, 32, 256)])
def test_unsupported_widths_raise(maps: int, head_dim: int, value_dim: int) -> None:
    with pytest.raises(BackendError, match=f"no kernel for head_dim {head_dim} with .*; use sdpa"):
        kernel_for("forward", maps, head_dim, value_dim)


def test_a_gpu_uses_the_first_tile_that_fits(card: types.SimpleNamespace) -> None:
    expected, device = Kernel("forward", 2, 64, 128), torch.device("cuda", 0)
    first, *_ = tiles.shipped("90")[str(expected)]
    assert tile_for(expected, device) == Tile(*first[:-1])
    tiles._tile_on_gpu.cache_clear()
    card.major, card.minor, card.shared_memory_per_block_optin = 8, 9, 99 * 1024
    taken = tile_for(expected, device)
    small = [sizes for sizes in tiles.shipped("80")[str(expected)] if sizes[-1] <= 99 * 1024]
    assert taken == Tile(*small[0][:-1])
    tiles._tile_on_gpu.cache_clear()
    card.shared_memory_per_block_optin = 1024
    with pytest.raises(BackendError, match=r"no tile of forward/2/64/128 for NVIDIA H200 with"):
        tile_for(expected, device)


def test_a_gpu_uses_its_measured_tile(
    card: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.use_deterministic_algorithms(False)
    expected, device = Kernel("keys_atomic", 2, 64, 128), torch.device("cuda", 0)
    ways = {"backward/2/64/128": "atomic", "backward/1/64/64": "together"}
    table = {CARD: {"tiles": {str(expected): [32, 64, 4, 1]}, "backward": ways}}
    monkeypatch.setattr(tiles, "measured", lambda: table)
    assert tile_for(expected, device) == Tile(32, 64, 4, 1)
    assert tiles.way_for(expected, device) == "atomic"
    assert tiles.way_for(expected._replace(masked=True), device) == "atomic"
    torch.use_deterministic_algorithms(True)
    try:
        assert tiles.way_for(expected, device) == "together"
    finally:
        torch.use_deterministic_algorithms(False)
    others = ((2, 128, 256, "apart"), (2, 32, 64, "together"), (1, 64, 64, "together"))
    for *shape, guess in others:
        assert tiles.way_for(Kernel("queries", *shape), device) == guess


def test_overridden_tiles_end_with_the_context() -> None:
    expected, device = Kernel("forward", 2, 64, 128), torch.device("cpu")
    with trying({expected: Tile(1, 2, 3, 4)}, way="atomic"):
        assert tile_for(expected, device) == Tile(1, 2, 3, 4)
        assert tiles.way_for(expected, device) == "atomic"
    assert tile_for(expected, device) == tiles.INTERPRETED
    assert tiles.way_for(expected, device) == "together"


def test_auto_on_a_gpu_is_sdpa(card: types.SimpleNamespace) -> None:
    assert choose_backend("auto", "cuda", "bf16") == choose_backend("auto", "cuda") == "sdpa"


def test_backend_auto_follows_a_layer_to_the_gpu(card: types.SimpleNamespace) -> None:
    layer = layer_class("softmax")(64, num_heads=4)
    assert layer.backend == "cpu_dispatch"
    del layer.o_proj
    weight = types.SimpleNamespace(is_meta=False, device=torch.device("cuda"), dtype=torch.float32)
    layer.__dict__["o_proj"] = types.SimpleNamespace(weight=weight)
    layer._select_backend()
    assert layer.backend == "sdpa"


def test_a_way_backward_has_its_masked_kernels_too() -> None:
    for part in ("80", "90", "100"):
        for maps, d, e in ((2, 64, 128), (2, 128, 256), (1, 64, 64)):
            for way in tiles.ways_shipped(part, maps, d, e):
                for name in tiles.BACKWARD[way]:
                    assert tiles.shipped(part)[f"{name}/{maps}/{d}/{e}/masked"], (part, way)
            assert tiles.ways_shipped(part, maps, d, e)


def test_nothing_measured_lies_outside_of_git() -> None:
    for path in (tiles.MEASURED, tiles.COMPILED):
        assert path.is_file() and Path(fused.__file__).parents[1] in path.parents
