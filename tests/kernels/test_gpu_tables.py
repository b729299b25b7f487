"""What a card answered becomes the table in git, which the kernels go by."""

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from difftransformer.models.kernels.fused import tiles

pytest.importorskip("triton", reason="Triton is for Linux")
pytestmark = pytest.mark.usefixtures("gpu_scripts")


def answered(script: str, question: str, answer: dict[str, Any]) -> str:
    versions = {"torch": "2.11", "kernels": import_module("runs").kernels_digest()}
    origin = {"device": "H200", "capability": [9, 0], "versions": versions}
    dated = {"date": "2026-12-01", "script": script, "question": question}
    return json.dumps({**origin, **dated, "answer": answer}) + "\n"


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

    def actual(answer: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "tune.jsonl").write_text(answered("tune", "2/64/128", answer))
        card: dict[str, Any] = every.tiles(tmp_path)["H200"]
        return card

    assert actual(tuned) == {
        "tiles": {name: second},
        "backward": {},  # timed with the other tile
        "capability": [9, 0],
        "versions": json.loads(answered("", "", {}))["versions"],
        "date": "2026-12-01",
    }
    del times[str([9, 9, 9, 9])]
    assert actual(tuned | {"tiles": {name: second}})["backward"] == {"backward/2/64/128": "apart"}


def test_the_table_in_git_is_what_the_records_in_git_make_of_it() -> None:
    import runs

    assert json.loads(tiles.MEASURED.read_text()) == import_module("all").tiles(runs.RECORDS)


def test_later_questions_wait_until_the_tiles_are_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = import_module("all")
    monkeypatch.setattr(tiles, "MEASURED", tmp_path / "measured.json")
    tiles.MEASURED.write_text("{}")
    arguments = argparse.Namespace(device="cuda", records=tmp_path)
    assert every.is_adopted(arguments)  # nothing was found
    (tmp_path / "tune.jsonl").write_text(
        answered("tune", "2", {"tiles": {}, "backward": {"atomic": {"median": 1}}, "seconds": {}})
    )
    assert not every.is_adopted(arguments)
    every.adopt_answers(arguments)
    assert every.is_adopted(arguments)
