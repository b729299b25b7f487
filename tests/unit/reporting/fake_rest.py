"""Results that artifacts read and no other file here makes up, so that an added one is tested, too.

A result is like the nearest there is: of the run that a run is based on, else of a neighbor in
its section, else of any, each number a little smaller. `METRICS` names the metrics of
evaluations without a fake of their own.
"""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fake_configs
import pytest

from difftransformer.config.artifacts import Kind, SectionConfig
from difftransformer.config.judges import judged_suite

LEFT_OUT: dict[str, str] = {}
"""Evaluation -> file of tests/evaluations that builds its tables and figures instead.

For one whose report reads more than numbers by name, such as files beside a result.
"""

METRICS: dict[str, tuple[str, ...]] = {}
"""Evaluation -> metrics that its reports read."""


def the_rest(fake: Any, seeds: Sequence[int]) -> None:
    """Write what is missing; it is nothing while every row has a file here that makes it up."""
    for artifact in fake_configs.RESOLVER.artifacts.values():
        for part in artifact.sections:
            runs = _runs(part)
            for suite, run in _read(part, runs):
                for seed in seeds:
                    if (suite, run, seed) not in fake.paths:
                        _write(fake, suite, run, seed, runs)


def left_out(name: str) -> str | None:
    """Say why nothing here makes up what an artifact reads; None: it is made up."""
    swept = fake_configs.swept_runs()
    for part in fake_configs.RESOLVER.artifacts[name].sections:
        if part.evaluation in LEFT_OUT:
            return f"tests/evaluations/{LEFT_OUT[part.evaluation]} builds {part.evaluation}"
        if part.typed_options.swept and not any(row.run in swept for row in part.rows):
            return "swept_runs of fake_configs.py has none of its rows"
    return None


def made_up(kind: Kind) -> list[str]:
    """Return the artifacts that are built of made-up results."""
    artifacts = fake_configs.RESOLVER.artifacts.items()
    return [
        name for name, artifact in artifacts if getattr(artifact, kind) and left_out(name) is None
    ]


def skipped(kind: Kind) -> list[Any]:
    """Return the others as parameters of a test that is left out, and says why."""
    artifacts = fake_configs.RESOLVER.artifacts.items()
    return [
        pytest.param(name, marks=pytest.mark.skip(reason=f"{name}: {why}"))
        for name, artifact in artifacts
        if getattr(artifact, kind) and (why := left_out(name)) is not None
    ]


def _runs(part: SectionConfig) -> list[str]:
    members = fake_configs.RESOLVER.members
    return [run for row in part.rows for run in members(row.run, part.size_grid)]


def _read(part: SectionConfig, runs: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """Suites, and None for trainings, with the runs whose results a section reads.

    Sweeps are made up from `fake_configs.sweep`, timings from all rows that are timed.
    """
    if part.typed_options.swept:
        return
    paired_runs = [row.paired_run for row in part.rows if row.paired_run is not None]
    judges = fake_configs.artifact_resolver().judges
    for run in (*runs, *paired_runs):
        if part.typed_options.trained:
            yield None, run
        for suite in part.typed_options.paired_suites if run in paired_runs else part.suites:
            judge_names = judges.get(suite)
            yield from ((name, run) for name in _judged(suite, judge_names) or [suite])


def _judged(suite: str, judges: Sequence[str] | None) -> list[str]:
    return [judged_suite(suite, judge) for judge in judges or ()]


def _write(fake: Any, suite: str | None, run: str, seed: int, neighbors: Sequence[str]) -> None:
    artifacts = [suite] if suite is None else [suite, *_of_the_same_kind(suite, fake)]
    candidates = (
        fake.paths.get((artifact, other, seed))
        for artifact in artifacts
        for other in (run, *_bases(run), *neighbors, *fake.runs(artifact))
    )
    path = next((candidate for candidate in candidates if candidate is not None), None)
    if path is None:
        assert suite is not None, f"{run}: no training to make one up from"
        _by_names(fake, suite, run, seed)
        return
    content = json.loads(path.read_text())
    if suite is None:
        target = path.parents[1].with_name(run) / str(seed) / path.name
        _copy_history(fake, path.parent, target.parent)
    else:
        suite_folder = path.parents[1]
        suite_folder = suite_folder if content["suite"] == suite else suite_folder.with_name(suite)
        target = suite_folder / run / path.name
        if path.with_suffix("").is_dir():
            shutil.copytree(path.with_suffix(""), target.with_suffix(""))
    draw = random.Random(f"{suite}{run}{seed}")
    metrics = {
        name: value * draw.uniform(0.98, 1.0) if isinstance(value, float) else value
        for name, value in content["metrics"].items()
    }
    fake.write(target, content["kind"], run, seed, suite, metrics, content["settings"])


def _copy_history(fake: Any, source: Path, target: Path) -> None:
    if (history := source / "history.csv").is_file():
        target.mkdir(parents=True, exist_ok=True)
        fake.histories.append(Path(shutil.copy(history, target)))


def _of_the_same_kind(suite: str, fake: Any) -> list[str]:
    suites = fake_configs.RESOLVER.suites
    kind = suites[suite]["kind"] if suite in suites else None
    artifacts = dict.fromkeys(artifact for artifact, _, _ in fake.paths if artifact in suites)
    return [artifact for artifact in artifacts if suites[artifact]["kind"] == kind]


def _bases(run: str) -> Iterator[str]:
    """What a run is based on, the nearest first."""
    runs = fake_configs.RESOLVER.runs
    while run in runs and (base := runs[run].base) is not None:
        yield (run := base)


def _by_names(fake: Any, suite: str, run: str, seed: int) -> None:
    suite_config = fake_configs.RESOLVER.suite(suite)
    draw = random.Random(f"{suite}{run}{seed}")
    metrics = {name: draw.uniform(0.2, 0.8) for name in METRICS[suite_config.kind]}
    fake.evaluation(run, seed, suite, metrics, suite_config.model_dump(mode="json"))
