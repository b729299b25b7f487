"""A suite of many-shot learning on generated items."""

from typing import Any

from difftransformer.config.validation import validate
from difftransformer.evaluations.many_shot.settings import Suite

GENERATED = {
    "task": "trec", "data": "generated", "classes": 3, "demonstrations": [3, 6, 9],
    "order_seeds": 3, "test_items": 20,
}  # fmt: skip


def suite(**changes: Any) -> Suite:
    raw = {"kind": "many_shot", **GENERATED, **changes}
    checked: Suite = validate(Suite, raw, "suite")
    return checked
