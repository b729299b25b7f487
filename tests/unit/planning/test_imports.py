"""Modules that the parent process imports before it forks jobs."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from difftransformer.planning.imports import MANY, common_modules
from difftransformer.planning.plan import Plan


def test_modules_of_many_jobs_are_imported_once_and_of_few_by_themselves(repository: Path) -> None:
    needles, seeds = "difftransformer.evaluations.needles.measure", MANY // 2
    few, many = (
        Plan.load(repository / "config", {"scale": "smoke", "seeds": number})
        for number in (1, seeds)
    )
    assert len(set(few.artifacts.evaluations("table2"))) < MANY
    assert needles not in common_modules(few, ["table2"])
    assert needles in common_modules(many, ["table2"])
    assert common_modules(many, []) == []


def test_common_modules_include_adaptation_methods_and_can_be_imported(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke", "seeds": MANY})
    modules = common_modules(plan, ["dex_methods"])
    assert "difftransformer.training.methods.lora" in modules
    for name in modules:
        import_module(name)


@pytest.mark.slow
def test_the_process_can_fork_after_importing_common_modules(repository: Path) -> None:
    """Else every job from then on would start by itself: slower than with nothing imported."""
    plan = Plan.load(repository / "config", {"scale": "tiny", "seeds": 3})
    modules = [name for group in plan.groups.values() for name in common_modules(plan, group)]
    assert "difftransformer.evaluations.language_understanding.measure" in modules
    code = (
        "import importlib, sys\n"
        "from difftransformer import __main__\n"
        "from difftransformer.machine import forking\n"
        "for name in (*__main__._WARM, *sys.argv[1:]): importlib.import_module(name)\n"
        "print(forking.may_fork())"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, *modules],
        env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert completed.stdout.split() == ["True"]
