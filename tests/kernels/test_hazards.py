"""What is seen in compiled code that fetches rows over those that a product still reads."""

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from difftransformer.errors import BackendError
from difftransformer.models.kernels.fused.hazards import overwritten

with suppress(ImportError):  # Triton is for Linux
    import triton.language as tl

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
    actual = overwritten(LOOP.format(count=count, pendings=pendings), stages)
    assert actual == (["rows@1"] if clash else [])


@pytest.mark.parametrize(("pendings", "clash"), [(0, False), (1, True)])
def test_rows_that_are_laid_out_in_the_loop_are_looked_at_too(pendings: int, clash: bool) -> None:
    lines = LOOP.format(count=1, pendings=pendings).replace("async_copy_global_to_local", "nothing")
    named = "%now = ttg.local_alloc %loaded : (tensor<32x64xbf16>) -> !ttg.memdesc<32x64xbf16>"
    swapped = lines.replace(lines.splitlines()[4].strip(), named)
    assert overwritten(swapped, 1) == (["now@4"] if clash else [])


def sum_of_rows(q, k, out, T, ROWS):  # type: ignore[no-untyped-def]
    """Triton: two products of the same rows; the first is of the older kind below 64 of them."""
    columns, rows = tl.arange(0, 64), tl.arange(0, ROWS)
    keys = tl.load(k + columns[:, None] * 64 + columns)
    total = tl.zeros([64, 64], tl.float32)
    for m in range(0, T, ROWS):
        actual = tl.load(q + (m + rows)[:, None] * 64 + columns)
        scores = tl.dot(actual, tl.trans(keys)).to(tl.bfloat16)
        total = tl.dot(tl.trans(scores), actual, total)
    tl.store(out + columns[:, None] * 64 + columns, total)


AROUND = """
    %state = scf.for %h = %c0 to %H step %c1 iter_args(%s = %zeros) -> (tensor<64x64xf32>) {
%s
    } loc(#loc1)
"""


def test_products_may_not_go_on_into_another_loop() -> None:
    waits = (
        "%d:2 = ttng.warp_group_dot_wait %out#0, %out#1 {pendings = 0 : i32} : tensor<64x64xf32>"
    )
    inner = LOOP.format(count=2, pendings=1).strip("\n").replace("\n    ", "\n      ")
    for between, actual in ((waits, []), ("", ["a loop that begins while products go on"])):
        lines = f"  {inner}\n      {between}\n  {inner}\n      {between}"
        assert overwritten(AROUND.replace("%s\n", lines + "\n"), 2) == actual


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ttg.local_store %rows, %now : tensor<32x64xbf16>", "ttg.local_store"),
        ("%t = ttng.async_tma_copy_global_to_local %desc[%i] %now", "ttng.async_tma"),
        ("%t = ttg.async_copy_global_to_local %at, %other mask %m", "ttg.async_copy_g"),
        ("%t = ttng.warp_group_dot %scores, %other, %sum", "reads what is not known"),
    ],
)
def test_unknown_instructions_count_as_hazards(line: str, name: str) -> None:
    loop = LOOP.format(count=2, pendings=0)
    (actual,) = overwritten(loop.replace("%inner = scf.if", f"{line}\n      %inner = scf.if"), 2)
    assert actual.startswith("line 9: " + name)
    branch = loop.replace("        scf.yield %x", "        %b = ttng.warp_group_dot %p, %part, %s")
    assert overwritten(branch.replace("%s : i32", "%s {isAsync = true} : i32"), 2) == [
        "line 10: in a branch"
    ]


def test_code_that_has_run_is_looked_at_once() -> None:
    pytest.importorskip("triton", reason="Triton is for Linux")
    from difftransformer.models.kernels.fused.launch import check_code
    from difftransformer.models.kernels.fused.tiles import Kernel, Tile

    kernel, tile = Kernel("keys", 1, 64, 64), Tile(32, 128, 8, 2)
    for count in (2, 1):
        ran = SimpleNamespace(hash=f"{count}", asm={"ttgir": LOOP.format(count=count, pendings=1)})
        if count == 2:
            check_code(ran, kernel, tile)
            ran.asm.clear()
            check_code(ran, kernel, tile)
        else:
            with pytest.raises(BackendError, match=r"keys/1/64/64 with tile .*; use sdpa, or"):
                check_code(ran, kernel, tile)
    check_code(None, kernel, tile)  # the interpreter's


@pytest.mark.kernels
@pytest.mark.parametrize(("rows", "clash"), [(64, False), (32, True)])
@pytest.mark.parametrize("stages", [2, 3])
def test_the_fault_is_seen_in_what_the_compiler_makes(
    rows: int, clash: bool, stages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton", reason="Triton is for Linux")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    signature = {"q": "*bf16", "k": "*bf16", "out": "*fp32", "T": "i32", "ROWS": "constexpr"}
    source = triton.compiler.ASTSource(
        fn=triton.jit(sum_of_rows),
        signature=signature,
        constexprs={(4,): rows},
        attrs={(pointer,): [["tt.divisibility", 16]] for pointer in range(3)},
    )
    made = triton.compile(
        source,
        target=triton.backends.compiler.GPUTarget("cuda", 90, 32),
        options={"num_warps": 4, "num_stages": stages},
    )
    assert bool(overwritten(made.asm["ttgir"], stages)) == clash


def test_a_tile_whose_rows_are_overwritten_is_not_shipped() -> None:
    from difftransformer.models.kernels.fused.compiling import Compiled

    taken = Compiled(registers=184, spilled=0, shared=49408)
    assert taken.fits("90") and not taken._replace(overwritten=4).fits("90")
