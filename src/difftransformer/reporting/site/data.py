"""Data for the scripts of the site: jobs, settings, cells, runs with curves, attention maps."""

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
"""Largest number of points in a curve."""
_DIGITS = 4
_NO_SETTING = ("upstream", "scale", "run", "resolved", "held_out")
_FACTS = ("parameters", "tokens")
_FINAL_METRICS = ("validation_loss", "steps_to_learn")
"""Training metrics in the list of runs."""


def script(name: str, content: object) -> str:
    """Return JavaScript that stores data under a name, to be loaded by a page opened from disk.

    Such pages cannot load data in any other form.
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"(globalThis.REPORT ??= {{}})[{json.dumps(name)}] = {text};\n"


def jobs(provenance: ProvenanceSummary) -> dict[str, Any]:
    """Return the jobs of a report by id, each as a list of values.

    The values are: kind, run, suite, seed, fingerprint, commit, machine, seconds, threads, file.
    """
    return {
        "commits": provenance.commits,
        "machines": provenance.machines,
        "jobs": {
            job.job_id: [
                job.kind, job.run, job.suite, job.seed, job.fingerprint, job.commit, job.machine,
                round(job.seconds, 1), job.threads, job.file,
            ]
            for job in provenance.jobs
        },
    }  # fmt: skip


def settings(trainings: Iterable[Result]) -> dict[str, Any]:
    """Return the settings that all runs share, and each run's other settings, by key path."""
    flat = {training.run: flat_settings(training) for training in trainings}
    keys = sorted({key for run_settings in flat.values() for key in run_settings})
    shared = {
        key: values[0]
        for key in keys
        if len(values := [run_settings.get(key) for run_settings in flat.values()]) > 1
        and all(value == values[0] for value in values)
    }
    runs = {
        run: {key: value for key, value in run_settings.items() if key not in shared}
        for run, run_settings in flat.items()
    }
    return {"shared": shared, "runs": runs}


def cells(table: TableDocument) -> list[dict[str, Any]]:
    """Return the sections of a table with rows and details of each cell, for report scripts."""
    return [
        {
            "rows": {row.run: row.label for row in section.rows},
            "cells": {
                f"{cell.row}/{cell.column}": {
                    "header": headers[cell.column],
                    "text": cell.text,
                    "interval": None
                    if cell.ci_low is None or cell.ci_high is None
                    else [_rounded(cell.ci_low), _rounded(cell.ci_high)],
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


def runs(report: ReportConfig, results: Results) -> dict[str, Any]:
    """Return the time, memory, final metrics and curves of each run, in the order of the report."""
    by_run: dict[str, list[Result]] = {}
    for result in results.trainings.values():
        by_run.setdefault(result.run, []).append(result)
    order = [run for run in report.runs if run in by_run]
    order += [run for run in by_run if run not in report.runs]
    return {run: _run(run, report, by_run[run], results.histories) for run in order}


def _run(
    run: str, report: ReportConfig, results: list[Result], histories: Histories
) -> dict[str, Any]:
    config = report.runs.get(run)
    seconds = [result.provenance.seconds for result in results]
    memory = [result.provenance.peak_memory_gib for result in results]
    tokens = [float(result.metrics.get("tokens") or 0) for result in results]
    final = {
        metric: _rounded(math.fsum(values) / len(values))
        for metric in _FINAL_METRICS
        if (values := [float(v) for r in results if (v := r.metrics.get(metric)) is not None])
    }
    return {
        "label": config.label if config else run,
        "base": config.base if config else None,
        "color": config.color if config else None,
        "seeds": [result.seed for result in results],
        "facts": {name: results[0].metrics.get(name) for name in _FACTS},
        "seconds": round(math.fsum(seconds) / len(seconds), 1),
        "speed": _rounded(sum(tokens) / total) if (total := sum(seconds)) else None,
        "memory": max((gib for gib in memory if gib is not None), default=None),
        "final": final,
        "curves": _curves(run, [result.seed for result in results], histories),
    }


def _curves(run: str, seeds: Sequence[int], histories: Histories) -> dict[str, Any]:
    """Return each column over tokens: mean and range if seeds share their steps, else all seeds."""
    by_seed = [histories.columns(run, seed) for seed in seeds]
    curves = {}
    for name in dict.fromkeys(name for columns in by_seed for name in columns):
        measured = [columns[name] for columns in by_seed if name in columns]
        series = [dict(zip(s.tokens, s.values, strict=True)) for s in measured if s.tokens]
        if not series:
            continue
        shared = [x for x in series[0] if all(x in values for values in series)]
        longest = max(len(values) for values in series)
        if len(series) == 1 or len(shared) >= 0.8 * longest:
            x = _thin(shared)
            rows = [[values[tokens] for values in series] for tokens in x]
            line: dict[str, Any] = {"x": x, "mean": [_rounded(math.fsum(r) / len(r)) for r in rows]}
            if len(series) > 1:
                line |= {"low": [_rounded(min(row)) for row in rows]}
                line |= {"high": [_rounded(max(row)) for row in rows]}
        else:
            x = _thin(sorted({tokens for values in series for tokens in values}))
            by_tokens = [[_rounded(values.get(tokens)) for tokens in x] for values in series]
            line = {"x": x, "seeds": by_tokens}
        curves[name] = line
    return curves


def _thin(tokens: Sequence[int]) -> list[int]:
    """Return at most `_POINTS` evenly spaced items, including the last."""
    if len(tokens) <= _POINTS:
        return list(tokens)
    step = (len(tokens) - 1) / (_POINTS - 1)
    return [tokens[round(index * step)] for index in range(_POINTS)]


def _rounded(value: float | None) -> float | None:
    """Return a value with the digits that a curve or panel shows; integers as int."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS + 1}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def attention(maps: Sequence[PromptMaps], trainings: Iterable[Result]) -> dict[str, Any]:
    """Return attention maps by prompt and run, and λ by run and layer, for report scripts."""
    prompts: dict[str, dict[str, Any]] = {}
    for prompt_map in maps:
        prompts.setdefault(prompt_map.prompt, {})[prompt_map.run] = {
            "label": prompt_map.label,
            "tokens": prompt_map.tokens,
            "heads": [[_quantized(head) for head in layer] for layer in prompt_map.weights],
        }
    lambdas: dict[str, list[float | None]] = {}
    runs = {prompt_map.run for prompt_map in maps}
    for training in trainings:
        layers = [*takewhile(training.metrics.__contains__, map(lambda_metric, count()))]
        if training.run in runs and layers and training.run not in lambdas:
            lambdas[training.run] = [_rounded(training.metrics[name]) for name in layers]
    return {"prompts": prompts, "lambdas": lambdas}


def _quantized(weights: "NDArray[np.floating]") -> list[Any]:
    """Return the largest absolute weight, and the weights divided by it as base64 of int8."""
    import numpy as np

    largest = float(np.abs(weights).max(initial=0.0))
    scale = 127 / largest if largest else 0.0
    integers = np.round(weights.astype(np.float64) * scale).astype(np.int8)
    return [_rounded(largest), base64.b64encode(integers.tobytes()).decode("ascii")]


def flat_settings(result: Result) -> dict[str, Any]:
    """Return the settings of a training in one mapping by key path.

    Folders are shortened to their names.
    """
    settings = {key: value for key, value in result.settings.items() if key not in _NO_SETTING}
    return dict(_flat("", without_folders(settings)))


def _flat(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else key, item)
    else:
        yield path, value
