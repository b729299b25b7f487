"""What a card answered becomes the tables in git, which `auto` and the kernels go by."""

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from difftransformer.models.kernels.fused import tiles

pytest.importorskip("triton", reason="Triton is for Linux")
pytestmark = pytest.mark.usefixtures("gpu_scripts")


def answered(
    script: str, question: str, answer: dict[str, Any], device: str = "H200", kernels: str = ""
) -> str:
    versions = {"torch": "2.11", "kernels": kernels or import_module("runs").kernels_digest()}
    origin = {"device": device, "capability": [9, 0], "versions": versions}
    dated = {"date": "2026-12-01", "script": script, "question": question}
    return json.dumps({**origin, **dated, "answer": answer}) + "\n"


def test_answers_become_the_tables_that_auto_takes(tmp_path: Path) -> None:
    every = import_module("all")
    seconds = {
        1024: {"fused": 3.0, "padded (sdpa)": 2.0, "plain fused": 2.0, "plain sdpa": 1.0},
        8192: {"fused": 3.0, "padded (sdpa)": 4.0, "plain fused": 0.5, "plain sdpa": 1.0},
    }
    lines = [
        answered(
            "attention",
            f"keys {T} d 64 {mode}",
            {"seconds": {name: {"median": value} for name, value in taken.items()}},
        )
        for T, taken in seconds.items()
        for mode in ("training", "forward")
    ]
    old = {"seconds": {"padded (sdpa)": {"median": 99.0}, "plain fused": {"median": 0.1}}}
    lines.insert(0, answered("attention", "T 1024 d 64 training", old))  # in another way
    wide = {"padded (sdpa)": 2.0, "fused": 1.0, "lse fused": 1.0, "lse sdpa": 2.0}
    wider = {"seconds": {name: {"median": value} for name, value in wide.items()}}
    lines.append(answered("attention", "keys 8192 d 128 training", wider))
    lines.append(answered("attention", "keys 8192 d 128 training others", old))
    lines.append(answered("attention", "keys 9 d 64 training", {"out_of_memory": "no"}))
    lines.append(answered("attention", "keys 9 d 64 training", {"seconds": {}}, device="cpu"))
    (tmp_path / "attention.jsonl").write_text("".join(lines))
    sdpa, fused = [[1, "sdpa"]], [[1, "fused"]]
    further = {"plain fused": 9.0, "plain sdpa": 1.0, "lse fused": 1.0, "lse sdpa": 2.0}
    longer = {"seconds": {name: {"median": value} for name, value in further.items()}}
    lines.append(answered("attention", "keys 65536 d 128 training", longer))  # no row of DIFF ran
    (tmp_path / "attention.jsonl").write_text("".join(lines))
    assert every.fastest(tmp_path) == {
        "H200": {
            "bf16": {
                "differential_attention": [[64, [[1, "sdpa"], [8192, "fused"]]], [128, fused]],
                "attention": [[64, [[1, "sdpa"], [8192, "fused"]]], [128, sdpa]],
                "attention_with_lse": [[64, sdpa], [128, fused]],
            }
        }
    }
    answer = {"tiles": {}, "backward": {"together": {"median": 1.0}}, "seconds": {}}
    (tmp_path / "tune.jsonl").write_text(answered("tune", "2/64/128", answer))
    operations = every.fastest(tmp_path)["H200"]["bf16"]
    assert operations["differential_attention"] == [[64, sdpa], [128, sdpa]]


def test_the_fastest_tile_is_one_that_is_still_shipped(tmp_path: Path) -> None:
    every = import_module("all")
    name, shipped = "forward/2/64/128", tiles.shipped("90")
    first, second = (tile for *tile, _ in shipped[name][:2])
    times = {str([9, 9, 9, 9]): 1.0, str(second): 2.0, str(first): 3.0}
    tuned = {
        "tiles": {name: [9, 9, 9, 9]},
        "backward": {way: {"median": value} for way, value in (("apart", 1.0), ("together", 2.0))},
        "seconds": {name: {tile: {"median": value} for tile, value in times.items()}},
    }

    def found(answer: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "tune.jsonl").write_text(answered("tune", "2/64/128", answer))
        card: dict[str, Any] = every.tiles(tmp_path)["H200"]
        return card

    assert found(tuned) == {
        "tiles": {name: second},
        "backward": {},  # timed with the other tile
        "capability": [9, 0],
        "versions": json.loads(answered("", "", {}))["versions"],
        "date": "2026-12-01",
    }
    del times[str([9, 9, 9, 9])]
    assert found(tuned | {"tiles": {name: second}})["backward"] == {"backward/2/64/128": "apart"}


def test_the_tables_in_git_are_what_the_records_in_git_make_of_them() -> None:
    import runs

    for path, found in import_module("all").tables(runs.RECORDS):
        assert json.loads(path.read_text()) == found


def test_another_backend_is_taken_where_it_is_clearly_faster(tmp_path: Path) -> None:
    every = import_module("all")
    fused = {1024: 1.0, 2048: 1.02, 4096: 1.04, 8192: 1.0}
    (tmp_path / "attention.jsonl").write_text(
        "".join(
            answered(
                "attention",
                f"keys {T} d 64 training",
                {"seconds": {"fused": {"median": time}, "padded (sdpa)": {"median": other}}},
            )
            for T, time in fused.items()
            for other in [1.0 if T < 8192 else 1.02]
        )
    )
    found = every.fastest(tmp_path)["H200"]["bf16"]["differential_attention"]
    assert found == [[64, [[1, "fused"], [4096, "sdpa"]]]]


def test_kernels_of_another_commit_are_not_taken(tmp_path: Path) -> None:
    every = import_module("all")
    answer = {"seconds": {"fused": {"median": 1.0}, "padded (sdpa)": {"median": 2.0}}}

    def taken(*kernels: str) -> list[Any]:
        lines = [
            answered("attention", "keys 1024 d 64 training", answer, "H200", one) for one in kernels
        ]
        (tmp_path / "attention.jsonl").write_text("".join(lines))
        (by_width,) = every.fastest(tmp_path)["H200"]["bf16"]["differential_attention"]
        found: list[Any] = by_width[1]
        return found

    assert taken("another") == [[1, "sdpa"]]
    assert taken("another", "") == taken("", "another") == [[1, "fused"]]


def test_what_comes_behind_waits_until_the_tables_are_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from difftransformer.models.kernels import by_card

    every = import_module("all")
    for module, name in ((by_card, "TABLE"), (tiles, "MEASURED")):
        monkeypatch.setattr(module, name, tmp_path / f"{name}.json")
        (tmp_path / f"{name}.json").write_text("{}")
    given = argparse.Namespace(device="cuda", records=tmp_path)
    assert every.is_adopted("tune", given)  # nothing was found
    (tmp_path / "tune.jsonl").write_text(
        answered("tune", "2", {"tiles": {}, "backward": {"atomic": {"median": 1}}, "seconds": {}})
    )
    assert not every.is_adopted("tune", given) and every.is_adopted("attention", given)
    every.adopt_answers(given)
    assert every.is_adopted("tune", given)
