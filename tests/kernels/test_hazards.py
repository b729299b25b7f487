"""What is seen in compiled code that fetches rows over those that a product still reads."""

import pytest

from difftransformer.models.kernels.fused.hazards import overwritten

LOOP = """
    %rows = ttg.local_alloc : () -> !ttg.memdesc<{count}x32x64xbf16, #shared, #smem, mutable>
    %first = ttg.memdesc_index %rows[%c0] : !ttg.memdesc<{count}x32x64xbf16, #shared>
    %out:2 = scf.for %n = %c0 to %T step %c32 iter_args(%sum = %zeros) -> (tensor<64x64xf32>) {{
      %now = ttg.memdesc_index %rows[%slot] : !ttg.memdesc<{count}x32x64xbf16, #shared>
      %part = ttg.memdesc_subslice %now[0, 0] : !ttg.memdesc<32x64xbf16, #shared>
      %a = ttng.warp_group_dot %scores, %part, %sum {{isAsync = true}} : tensor<64x32xbf16>
      %b:2 = ttng.warp_group_dot_wait %a, %part {{pendings = {pendings} : i32}} : tensor<64x64xf32>
      %inner = scf.if %more -> (i32) {{
        scf.yield %x : i32
      }}
      %token = ttg.async_copy_global_to_local %at, %first mask %m : tensor<32x64x!tt.ptr<bf16>>
      scf.yield %b : tensor<64x64xf32>
    }}
"""


@pytest.mark.parametrize(
    ("count", "pendings", "stages", "clash"),
    [(1, 0, 2, False), (1, 1, 2, True), (2, 1, 2, False), (2, 1, 3, True), (3, 1, 3, False)],
)
def test_a_product_is_waited_for_before_its_rows_go(
    count: int, pendings: int, stages: int, clash: bool
) -> None:
    found = overwritten(LOOP.format(count=count, pendings=pendings), stages)
    assert found == (["rows@1"] if clash else [])


@pytest.mark.parametrize(("pendings", "clash"), [(0, False), (1, True)])
def test_rows_that_are_laid_out_in_the_loop_are_looked_at_too(pendings: int, clash: bool) -> None:
    lines = LOOP.format(count=1, pendings=pendings).replace("async_copy_global_to_local", "nothing")
    named = "%now = ttg.local_alloc %loaded : (tensor<32x64xbf16>) -> !ttg.memdesc<32x64xbf16>"
    swapped = lines.replace(lines.splitlines()[4].strip(), named)
    assert overwritten(swapped, 1) == (["now@4"] if clash else [])


@pytest.mark.kernels
@pytest.mark.parametrize(("rows", "keys", "clashes"), [(64, 64, 0), (32, 128, 4)])
def test_the_tile_that_was_wrong_on_a_card_is_told_from_one_that_was_right(
    rows: int, keys: int, clashes: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton is for Linux")
    from difftransformer.models.kernels.fused.compiling import compiled
    from difftransformer.models.kernels.fused.tiles import Kernel, Tile

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    found = compiled(Kernel("keys", 1, 64, 64), Tile(rows, keys, 8, 2), "90")
    assert found.overwritten == clashes and found.fits("90") == (not clashes)
