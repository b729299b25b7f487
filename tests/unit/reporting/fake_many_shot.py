"""Results of the many-shot suites with the shape of real ones."""

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fake_results import FakeResults

ROWS = ("transformer", "transformer_halved_heads_groupnorm", "diff")
TASKS = {"trec": 2, "trec_fine": 4, "banking77": 6, "clinic150": 8}
ITEMS = 100


def many_shot_results(fake: "FakeResults", seed: int) -> None:
    """Everything that figures 6, 7 and 11 read, of one seed."""
    for row in ROWS:
        run = f"icl_{row}"
        fake.history(run, seed, [{"step": 10, "loss": 1.0, "validation_loss": 1.0}])
        fake.training(run, seed, {"validation_loss": 1.0})
        for task, classes in TASKS.items():
            numbers = [classes * times for times in (1, 2, 3)]
            many_shot_suite(fake, run, seed, f"icl_{task}", task, numbers, "random", 1)
            many_shot_suite(fake, run, seed, f"icl_{task}_random", task, numbers[-1:], "random", 10)
        many_shot_suite(fake, run, seed, "icl_trec_alternating", "trec", [6], "alternating", 30)


def many_shot_suite(
    fake: "FakeResults", run: str, seed: int, suite: str, task: str, numbers: list[int],
    order: str, orders: int, selection: str = "balanced",
) -> None:  # fmt: skip
    draw = random.Random(f"{suite} {run.removeprefix('icl_')} {seed}")
    skill = 0.5 if run == "icl_transformer" else 0.9
    metrics: dict[str, float | int | None] = {
        "chance": 1 / TASKS[task], "computed_positions": 30, "prompt_positions": 1000,
    }  # fmt: skip
    for number in numbers:
        chance = skill - 0.3 / number
        correct_by_order = [
            sum(draw.random() < chance for _ in range(ITEMS)) for _ in range(orders)
        ]
        metrics |= {
            f"accuracy_n{number}_o{i}": correct / ITEMS
            for i, correct in enumerate(correct_by_order)
        }
        metrics[f"accuracy_n{number}"] = sum(correct_by_order) / (orders * ITEMS)
    config = {
        "kind": "many_shot", "task": task, "data": "generated", "classes": TASKS[task],
        "word_noise": 0.4, "demonstrations": numbers, "order": order, "order_seeds": orders,
        "draws": 1, "test_items": ITEMS,
        "selection": selection,
    }  # fmt: skip
    fake.evaluation(run, seed, suite, metrics, config)
