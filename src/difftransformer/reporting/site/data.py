"""What the scripts of the site read: jobs, settings, cells and curves, as small as they can be."""

import base64
import json
import math
from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from difftransformer.config.resolved_artifacts import ReportConfig
from difftransformer.models.config import lambda_metric
from difftransformer.provenance.masking import without_folders
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.provenance_summary import ProvenanceSummary
from difftransformer.reporting.section_context import PromptMaps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POINTS = 160
"""Points of a curve at most."""
_DIGITS = 4
_NO_SETTING = ("upstream", "scale", "run", "resolved", "held_out")
_FACTS = ("parameters", "tokens")
_ENDS = {"validation_loss": "validation_loss", "steps_to_learn": "steps_to_learn"}
"""Metrics of trainings in the list of runs, with the names of their columns."""


def script(name: str, content: object) -> str:
    """Write data as a script: a page that was opened from disk may load these and nothing else."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"(globalThis.REPORT ??= {{}})[{json.dumps(name)}] = {text};\n"


def jobs(origins: ProvenanceSummary) -> dict[str, Any]:
    """Jobs by their ids, as lists.

    Kind, run, suite, seed, fingerprint, commit, machine, seconds, threads, file.
    """
    return {
        "commits": origins.commits,
        "machines": origins.machines,
        "jobs": {
            one.job_id: [
                one.kind, one.run, one.suite, one.seed, one.fingerprint, one.commit, one.machine,
                round(one.seconds, 1), one.threads, one.file,
            ]
            for one in origins.jobs
        },
    }  # fmt: skip


def settings(trainings: Iterable[Result]) -> dict[str, Any]:
    """Settings of the runs by their paths, apart from those that all of them share."""
    flat = {one.run: flat_settings(one) for one in trainings}
    keys = sorted({key for one in flat.values() for key in one})
    shared = {
        key: values[0]
        for key in keys
        if len(values := [one.get(key) for one in flat.values()]) > 1
        and all(value == values[0] for value in values)
    }
    runs = {
        run: {key: value for key, value in one.items() if key not in shared}
        for run, one in flat.items()
    }
    return {"shared": shared, "runs": runs}


def cells(table: TableDocument) -> list[dict[str, Any]]:
    """Sections of a table: its rows, and of each cell what a reader sees who opens it."""
    return [
        {
            "rows": {row.run: row.label for row in section.rows},
            "cells": {
                f"{cell.row}/{cell.column}": {
                    "header": headers[cell.column],
                    "text": cell.text,
                    "interval": None
                    if cell.ci_low is None or cell.ci_high is None
                    else [_short(cell.ci_low), _short(cell.ci_high)],
                    "published": cell.paper_text,
                    "seeds": [[seed.seed, seed.text, seed.job_ids] for seed in cell.seeds],
                    "each": cell.each,
                }
                for cell in section.cells
                if cell.column in headers and cell.seeds
            },
        }
        for section in table.sections
        for headers in [{column.id: column.header for column in section.visible()}]
    ]


def runs(report: ReportConfig, found: Results) -> dict[str, Any]:
    """Runs with what they took, where they ended, and their curves."""
    by_run: dict[str, list[Result]] = {}
    for result in found.trainings.values():
        by_run.setdefault(result.run, []).append(result)
    order = [run for run in report.runs if run in by_run]
    order += [run for run in by_run if run not in report.runs]
    return {run: _run(run, report, by_run[run], found.histories) for run in order}


def _run(
    run: str, report: ReportConfig, results: list[Result], histories: Histories
) -> dict[str, Any]:
    about = report.runs.get(run)
    seconds = [one.provenance.seconds for one in results]
    memory = [one.provenance.peak_memory_gib for one in results]
    tokens = [float(one.metrics.get("tokens") or 0) for one in results]
    ends = {
        column: _short(math.fsum(values) / len(values))
        for metric, column in _ENDS.items()
        if (values := [float(v) for one in results if (v := one.metrics.get(metric)) is not None])
    }
    return {
        "label": about.label if about else run,
        "base": about.base if about else None,
        "color": about.color if about else None,
        "seeds": [one.seed for one in results],
        "facts": {name: results[0].metrics.get(name) for name in _FACTS},
        "seconds": round(math.fsum(seconds) / len(seconds), 1),
        "speed": _short(sum(tokens) / total) if (total := sum(seconds)) else None,
        "memory": max((known for known in memory if known is not None), default=None),
        "ends": ends,
        "curves": _curves(run, [one.seed for one in results], histories),
    }


def _curves(run: str, seeds: Sequence[int], histories: Histories) -> dict[str, Any]:
    """Each column over tokens: mean and range where all seeds were measured, else every seed."""
    read = [histories.columns(run, seed) for seed in seeds]
    found = {}
    for name in dict.fromkeys(name for one in read for name in one):
        known = [one[name] for one in read if name in one and one[name].tokens]
        series = [dict(zip(one.tokens, one.values, strict=True)) for one in known]
        if not series:
            continue
        shared = [x for x in series[0] if all(x in one for one in series)]
        longest = max(len(one) for one in series)
        if len(series) == 1 or len(shared) >= 0.8 * longest:
            x = _thin(shared)
            values = [[one[place] for one in series] for place in x]
            line: dict[str, Any] = {"x": x, "mean": [_short(math.fsum(v) / len(v)) for v in values]}
            if len(series) > 1:
                line |= {"low": [_short(min(v)) for v in values]}
                line |= {"high": [_short(max(v)) for v in values]}
        else:
            x = _thin(sorted({place for one in series for place in one}))
            line = {"x": x, "seeds": [[_short(one.get(place)) for place in x] for one in series]}
        found[name] = line
    return found


def _thin(places: Sequence[int]) -> list[int]:
    """Evenly chosen ones, the last among them."""
    if len(places) <= _POINTS:
        return list(places)
    step = (len(places) - 1) / (_POINTS - 1)
    return [places[round(index * step)] for index in range(_POINTS)]


def _short(value: float | None) -> float | None:
    """As many digits as a curve or a panel shows; whole numbers whole."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS + 1}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def attention(maps: Sequence[PromptMaps], trainings: Iterable[Result]) -> dict[str, Any]:
    """Maps by prompt and run, a head's as bytes of its largest size; lambdas by run and layer."""
    prompts: dict[str, dict[str, Any]] = {}
    for one in maps:
        found = prompts.setdefault(one.prompt, {})
        found[one.run] = {
            "label": one.label,
            "tokens": one.tokens,
            "heads": [[_bytes(head) for head in layer] for layer in one.weights],
        }
    lambdas: dict[str, list[float | None]] = {}
    runs = {one.run for one in maps}
    for result in trainings:
        names = map(lambda_metric, count())
        known = [*takewhile(result.metrics.__contains__, names)]
        if result.run in runs and known and result.run not in lambdas:
            lambdas[result.run] = [_short(result.metrics[name]) for name in known]
    return {"prompts": prompts, "lambdas": lambdas}


def _bytes(weights: "NDArray[np.floating]") -> list[Any]:
    import numpy as np

    size = float(np.abs(weights).max(initial=0.0))
    whole = np.round(weights.astype(np.float64) * (127 / size if size else 0.0)).astype(np.int8)
    return [_short(size), base64.b64encode(whole.tobytes()).decode("ascii")]


def flat_settings(result: Result) -> dict[str, Any]:
    """Return the settings of a training by key path; folders are shortened to their names."""
    asked = {key: value for key, value in result.settings.items() if key not in _NO_SETTING}
    return dict(_flat("", without_folders(asked)))


def _flat(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _flat(f"{path}.{key}" if path else key, one)
    else:
        yield path, value
