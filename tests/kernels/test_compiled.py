"""The tiles that are shipped compile for their parts, without a GPU."""

import json
from collections import Counter
from pathlib import Path

import pytest

from difftransformer.models.kernels.fused.tiles import (
    COMPILED,
    MEASURED,
    Kernel,
    Tile,
    kernels_of,
    measured,
    part_of,
    shipped,
)

pytest.importorskip("triton", reason="Triton is for Linux")
from difftransformer.models.kernels.fused.backward import row_statistics
from difftransformer.models.kernels.fused.compiling import (
    LEAST_SHARED,
    PARTS,
    by_tool,
    code,
    code_of,
    compiled,
    further_widths,
    usage,
)
from difftransformer.models.kernels.fused.launch import STATISTICS_ROWS

WIDTHS = (16, 32, 64, 128)
EACH = 5
"""Of so many tiles `make test-kernels` compiles one; the table says that all were."""
SHIPPED = [
    pytest.param(
        *(part, key, tile),
        id=f"{part}-{key}-{'x'.join(map(str, tile[:-1]))}",
        marks=[pytest.mark.exhaustive] if number % EACH else [],
    )
    for number, (part, key, tile) in enumerate(
        (part, key, tile)
        for part in PARTS
        for key, tiles in shipped(part).items()
        for tile in tiles
    )
]
SAMPLE = [
    ("90", "forward/2/64/128"),
    ("90", "keys/2/128/256"),
    ("80", "queries/2/64/128"),
    ("100", "forward/2/128/256"),
    ("100", "keys_atomic/1/128/128/masked"),
]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles anew, whatever an earlier run has left."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def kernel_of(key: str) -> Kernel:
    name, *sizes = key.split("/")
    return Kernel(name, *map(int, sizes[:3]), masked=sizes[3:] == ["masked"])


def check(part: str, key: str, tile: list[int]) -> None:
    kernel = kernel_of(key)
    assert Tile(*tile[:-1]).ahead <= kernel.most_ahead
    actual = compiled(kernel, Tile(*tile[:-1]), part)
    assert actual.fits(part), actual
    assert actual.shared == tile[-1], "run benchmarks/gpu/compile_tiles.py"
    for widths in further_widths(kernel):
        assert compiled(kernel, Tile(*tile[:-1]), part, widths).fits(part)


@pytest.mark.kernels
@pytest.mark.parametrize(("part", "key", "tile"), SHIPPED)
def test_every_tile_compiles_well(part: str, key: str, tile: list[int]) -> None:
    check(part, key, tile)


@pytest.mark.kernels
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("widths", [(64, 64), (192, 256), (256, 256)], ids=str)
@pytest.mark.parametrize("pair", [True, False], ids=["pair", "single"])
def test_statistics_of_rows_compile_well(part: str, widths: tuple[int, int], pair: bool) -> None:
    sizes = {"VALUE_DIM": widths[0], "E": widths[1], "ROWS": STATISTICS_ROWS}
    made = code_of(row_statistics, {"PAIR": pair, "LSE_GRAD": not pair} | sizes, part)
    _, spilled = usage(made.asm["cubin"])
    assert spilled == 0


@pytest.mark.slow
@pytest.mark.parametrize(("part", "key"), SAMPLE)
def test_some_tiles_compile_well(part: str, key: str) -> None:
    check(part, key, shipped(part)[key][0])


@pytest.mark.slow
def test_products_that_wait_for_each_other_are_seen() -> None:
    kernel = Kernel("forward", 2, 64, 128)
    fast, slow = (
        compiled(kernel, tile, "90") for tile in (Tile(64, 64, 4, 3), Tile(128, 128, 8, 2))
    )
    assert fast.fits("90") and not fast.serialized
    assert slow.serialized and not slow.fits("90")


def hot_loop(key: str, tile: Tile) -> Counter[str]:
    """Instructions of a turn of the loop without a mask, by kind."""
    import read_code

    listing = by_tool("nvdisasm", "-c", code(kernel_of(key), tile, "90").asm["cubin"])
    kinds = [Counter(map(read_code.kind_of, loop)) for loop in read_code.loops(listing)]
    masked, unmasked = (kind for kind in kinds if kind["products"])
    assert masked["products"] == unmasked["products"] >= 16
    return unmasked


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_scripts")
@pytest.mark.parametrize(
    ("key", "most"), [("keys/2/64/128", 2), ("of_values/2/128/256", 1), ("keys/1/64/64", 1)]
)
def test_numbers_of_rows_are_not_fetched_one_by_one(key: str, most: int) -> None:
    """Triton 3.6 did so 32 times a thread, 3.7 twice as often as now."""
    actual = hot_loop(key, Tile(*shipped("90")[key][0][:-1]))
    assert 0 < actual["fetches of less"] <= most
    assert actual["fetches of 16 bytes"] >= 4 and actual["exponentials"] >= 32


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_scripts")
def test_products_that_are_ahead_are_not_waited_for() -> None:
    tiles = [Tile(32, 128, 8, 3, ahead) for ahead in range(3)]
    actual = [hot_loop("keys/2/64/128", tile)["waits for products"] for tile in tiles]
    assert actual == [3, 2, 1]


@pytest.mark.usefixtures("gpu_scripts")
def test_all_tiles_were_compiled_from_the_kernels_as_they_are(repository: Path) -> None:
    import runs

    made_of = json.loads(COMPILED.read_text())["made_of"]
    assert made_of["kernels"] == runs.kernels_digest(), "run benchmarks/gpu/compile_tiles.py --keep"
    assert f"\ntriton=={made_of['triton']} ;" in (repository / "constraints.txt").read_text()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", kernels_of(2))
def test_all_kernels_have_tiles(part: str, name: str) -> None:
    for d in WIDTHS:
        shapes = [(2, 2 * d), *([(1, d), (1, 2 * d)] if name in kernels_of(1) else [])]
        for maps, e in shapes:
            for masked in (False, True):
                kernel = Kernel(name, maps, d, e, masked)
                tiles = shipped(part)[str(kernel)]
                if kernel.split_maps and name in ("keys", "keys_atomic") and part == "100":
                    continue  # what both maps gather is all of its tensor memory
                assert all(shared <= PARTS[part] for *_, shared in tiles)
                least = PARTS[part] if part != "80" else LEAST_SHARED
                assert min(shared for *_, shared in tiles) <= least


def test_measured_tiles_are_shipped() -> None:
    assert json.loads(MEASURED.read_text()) == measured()
    for actual in measured().values():
        part = part_of(tuple(actual["capability"]))
        for key, tile in actual["tiles"].items():
            assert Tile(*tile) in [Tile(*sizes) for *sizes, _ in shipped(part)[key]]
