"""Turns are taken in rounds, and memory is that of one call's tensors."""

import itertools
from statistics import quantiles

import pytest
import torch

from difftransformer.evaluation.timing import peak_memory, take_turns


def test_every_step_has_one_turn_a_round_and_follows_every_other_but_itself() -> None:
    done: list[str] = []
    steps = {name: (lambda name=name: done.append(name)) for name in "abc"}
    ticks = itertools.count()
    seconds = take_turns(steps, warmup=1, repeats=29, clock=lambda: next(ticks))
    assert all(sorted(done[at : at + 3]) == ["a", "b", "c"] for at in range(0, 90, 3))
    assert set(itertools.pairwise(done)) == set(itertools.permutations("abc", 2))
    assert seconds == {name: [1] * 29 for name in "abc"}
    before = list(done)
    take_turns(steps, warmup=1, repeats=29, clock=lambda: next(ticks))
    assert done == before + before


@pytest.mark.parametrize(("names", "expected"), [("ab", "ababab"), ("a", "aaa")])
def test_two_steps_alternate_and_one_repeats(names: str, expected: str) -> None:
    done: list[str] = []
    steps = {name: (lambda name=name: done.append(name)) for name in names}
    take_turns(steps, warmup=0, repeats=3)
    assert "".join(done) in (expected, expected[::-1])


def test_what_slows_a_round_slows_all_of_it_alike() -> None:
    now = 0.0

    def work(cost: float) -> None:
        nonlocal now
        now += cost * (1 if now < 10 else 5)  # another job starts

    steps = {"one": lambda: work(1.0), "two": lambda: work(2.0)}
    seconds = take_turns(steps, warmup=0, repeats=20, clock=lambda: now)
    ratios = [a / b for a, b in zip(seconds["one"], seconds["two"], strict=True)]
    assert quantiles(ratios, n=4) == [0.5, 0.5, 0.5]
    assert min(seconds["one"]) == 1.0 and max(seconds["one"]) == 5.0


@pytest.mark.parametrize("size", [1000, 50_000])
def test_peak_memory_is_that_of_the_tensors_that_live_together(size: int) -> None:
    def step() -> None:
        for _ in range(3):  # each is freed before the next
            torch.empty(size, dtype=torch.float32).fill_(1.0)

    found = peak_memory(step, torch.device("cpu"))
    assert 4 * size <= found <= 4 * size + 4096
