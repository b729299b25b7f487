"""Measured numbers that the package ships say on which machine and which day they were measured."""

import datetime
import json
from typing import Any

from difftransformer.models.kernels.fused.tiles import MEASURED
from snakemake_logger_plugin_difftransformer.remaining import FIRST_BUILD


def assert_origin(measured: dict[str, Any], machine: str) -> None:
    assert datetime.datetime.fromisoformat(measured["date"]).year >= 2026
    assert machine.strip()


def test_seconds_of_jobs_name_their_machine_and_day() -> None:
    shipped = json.loads(FIRST_BUILD.read_text())
    assert_origin(shipped, shipped["machine"])
    assert shipped["seconds"]


def test_tiles_name_their_card_and_day() -> None:
    shipped = json.loads(MEASURED.read_text())
    for card, measured in shipped.items():
        assert_origin(measured, card)
        assert measured["tiles"] and {"torch", "triton"} <= measured["versions"].keys()
    assert shipped
