"""What the process that jobs are forked from imports for them."""

from importlib import import_module
from pathlib import Path

from difftransformer.planning.imports import MANY, common_modules
from difftransformer.planning.plan import Plan


def test_modules_of_many_jobs_are_imported_once_and_of_few_by_themselves(repository: Path) -> None:
    needles, seeds = "difftransformer.measurements.needles.measure", MANY // 2
    few, many = (
        Plan.load(repository / "config", {"scale": "smoke", "seeds": number})
        for number in (1, seeds)
    )
    assert len(set(few.artifacts.evaluations("table2"))) < MANY
    assert needles not in common_modules(few, ["table2"])
    assert needles in common_modules(many, ["table2"])
    assert common_modules(many, []) == []


def test_adapting_counts_and_what_is_named_is_there(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke", "seeds": MANY})
    found = common_modules(plan, ["dex_methods"])
    assert "difftransformer.training.methods.lora" in found
    for name in found:
        import_module(name)
