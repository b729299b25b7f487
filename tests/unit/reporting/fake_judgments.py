"""Synthetic judgments of the lexical judge and of a second, less accurate judge."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from difftransformer.evaluations.hallucination.answers import JUDGMENTS, Judgment, write_lines
from difftransformer.evaluations.hallucination.settings import Suite

if TYPE_CHECKING:
    from fake_results import FakeResults

ROWS = ("recall_transformer", "recall_transformer_halved_heads_groupnorm", "recall_diff")
CHANCES = (0.2, 0.8, 0.9)
SUITE = Suite(kind="hallucination", samples=20, needles=[2, 4])
Verdicts = dict[tuple[str, int], bool | None]
"""Verdict by set and place."""


def judgments(fake: "FakeResults", seed: int) -> None:
    """Everything that table 4 and its twin read, of one seed and one judge."""
    for row, chance in zip(ROWS, CHANCES, strict=True):
        for run in (row, f"equal_{row}"):
            write(fake, run, seed, "lexical", verdicts(row, seed, chance))


def second_judge(fake: "FakeResults", seed: int, errs: Callable[[random.Random], bool]) -> None:
    """A language model that errs now and then, and leaves the first answer of a run unjudged."""
    for row, chance in zip(ROWS, CHANCES, strict=True):
        draw = random.Random(f"second {row} {seed}")
        truth = verdicts(row, seed, chance)
        verdicts_by_item: Verdicts = {
            key: faithful is not errs(draw) for key, faithful in truth.items()
        }
        verdicts_by_item[next(iter(verdicts_by_item))] = None
        write(fake, row, seed, "endpoint", verdicts_by_item)


def verdicts(row: str, seed: int, chance: float) -> Verdicts:
    draw = random.Random(f"lexical {row} {seed}")
    return {(name, i): draw.random() < chance for name in SUITE.set_tasks for i in range(20)}


def write(
    fake: "FakeResults",
    row: str,
    seed: int,
    judge: str,
    verdicts_by_item: Verdicts,
    suite: Suite = SUITE,
) -> None:
    metrics: dict[str, float | int | None] = {}
    for name in suite.set_tasks:
        all_verdicts = [faithful for (own, _), faithful in verdicts_by_item.items() if own == name]
        judged = [faithful for faithful in all_verdicts if faithful is not None]
        metrics |= {
            f"faithful_{name}": sum(judged) / len(judged) if judged else None,
            f"judged_{name}": len(judged),
            f"unjudged_{name}": len(all_verdicts) - len(judged),
            f"contradicted_{name}": len(judged) - sum(judged),
            f"unsupported_{name}": 0,
        }
    for label, task in (("average", ""), *((f"average_{t}", t) for t in ("summary", "answer"))):
        tasks = suite.set_tasks
        shares = [metrics.get(f"faithful_{name}") for name in tasks if tasks[name].startswith(task)]
        numbers = [float(share) for share in shares if share is not None]
        metrics[label] = sum(numbers) / len(numbers) if numbers else None
    metrics["unjudged"] = sum(faithful is None for faithful in verdicts_by_item.values())
    settings = {
        "config": suite.model_dump(mode="json"),
        "judge": {"kind": judge, "model": "judge-1", "prompt": "v1", "content_share": 0.8},
    }
    path = fake.root / f"judgments/{judge}/hallucination/{row}/{seed}.json"
    details = path.with_suffix("")
    details.mkdir(parents=True, exist_ok=True)
    judgments = [
        Judgment(set=name, index=i, faithful=faithful)
        for (name, i), faithful in verdicts_by_item.items()
    ]
    write_lines(details / JUDGMENTS, judgments)
    fake.write(path, "judgment", row, seed, f"hallucination_by_{judge}", metrics, settings)
