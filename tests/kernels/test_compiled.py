"""The tiles that are shipped compile for their parts, without a GPU."""

import json
from pathlib import Path

import pytest

from difftransformer.models.kernels.fused.tiles import (
    MEASURED,
    Kernel,
    Tile,
    measured,
    part_of,
    shipped,
)

pytest.importorskip("triton", reason="Triton is for Linux")
from difftransformer.models.kernels.fused.compiling import (
    LEAST_SHARED,
    PARTS,
    compiled,
    further_widths,
)

WIDTHS = (16, 32, 64, 128)
NAMES = ("forward", "keys", "keys_atomic", "queries")
SHIPPED = [
    pytest.param(part, key, tile, id=f"{part}-{key}-{'x'.join(map(str, tile[:4]))}")
    for part in PARTS
    for key, tiles in shipped(part).items()
    for tile in tiles
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
    found = compiled(kernel, Tile(*tile[:4]), part)
    assert found.fits(part), found
    assert found.shared == tile[4], "run benchmarks/gpu/compile_tiles.py"
    for widths in further_widths(kernel):
        assert compiled(kernel, Tile(*tile[:4]), part, widths).fits(part)


@pytest.mark.kernels
@pytest.mark.parametrize(("part", "key", "tile"), SHIPPED)
def test_every_tile_compiles_well(part: str, key: str, tile: list[int]) -> None:
    check(part, key, tile)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "key"), SAMPLE)
def test_some_tiles_compile_well(part: str, key: str) -> None:
    check(part, key, shipped(part)[key][0])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", NAMES)
def test_all_kernels_have_tiles(part: str, name: str) -> None:
    for d in WIDTHS:
        for maps, e in ((2, 2 * d), (1, d), (1, 2 * d)):
            for masked in (False, True):
                tiles = shipped(part)[str(Kernel(name, maps, d, e, masked))]
                assert all(shared <= PARTS[part] for *_, shared in tiles)
                least = PARTS[part] if part != "80" else LEAST_SHARED
                assert min(shared for *_, shared in tiles) <= least


def test_what_was_measured_is_shipped() -> None:
    assert json.loads(MEASURED.read_text()) == measured()
    for found in measured().values():
        part = part_of(tuple(found["capability"]))
        for key, tile in found["tiles"].items():
            assert tile in [one[:4] for one in shipped(part)[key]]
