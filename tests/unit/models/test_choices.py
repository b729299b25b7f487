"""Choices among ways to the same numbers: measured once, kept, forced, and never two at a time."""

import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from preloaded import Python, python

from difftransformer.errors import ConfigError
from difftransformer.models import choices
from difftransformer.models.choices import FOLDER, FORCED, Choice


def waiting(slow: float, quick: float) -> Choice:
    """Return a choice whose ways burn so many seconds of a thread, the assumed one first."""

    def burn(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    trials = {"slow": lambda: burn(slow), "quick": lambda: burn(quick)}
    return Choice("way of the test", ("slow", "quick"), lambda: trials)


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Measure, in a folder of the test's own, and leave no choice behind."""
    monkeypatch.delenv(FORCED)
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(choices, "_known", dict(choices._known))
    yield tmp_path / "cache" / "choices.json"


@pytest.mark.parametrize(("quick", "taken"), [(1e-4, "quick"), (1e-3, "slow"), (2e-3, "slow")])
def test_the_assumed_way_is_left_for_a_clearly_faster_one(
    quick: float, taken: str, unforced: Path
) -> None:
    choice = waiting(1e-3, quick)
    assert choice() == choice.made == taken
    assert json.loads(unforced.read_text())[choices.processor()][choice.name]["way"] == taken


def test_what_was_measured_is_kept_by_processor_and_not_measured_again(unforced: Path) -> None:
    assert waiting(1e-3, 1e-4)() == "quick"
    assert waiting(1e-4, 1e-3)() == "quick"
    other = {"another processor": json.loads(unforced.read_text()).pop(choices.processor())}
    unforced.write_text(json.dumps(other))
    assert waiting(1e-4, 1e-3)() == "slow"
    assert set(json.loads(unforced.read_text())) == {"another processor", choices.processor()}


def test_what_another_process_kept_between_the_look_and_the_lock_is_taken(
    unforced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = choices.open_lock

    def late(path: Path) -> tuple[int, int | None]:
        kept = {choices.processor(): {"way of the test": {"way": "quick"}}}
        unforced.write_text(json.dumps(kept))
        return locked(path)

    unforced.parent.mkdir()
    monkeypatch.setattr(choices, "open_lock", late)
    assert waiting(1e-4, 1e-3)() == "quick"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}', "\0"])
def test_a_damaged_file_is_measured_again(damage: str, unforced: Path) -> None:
    unforced.parent.mkdir()
    unforced.write_text(damage)
    assert waiting(1e-3, 1e-4)() == "quick"
    assert waiting(1e-4, 1e-3)() == "quick"


def test_where_nothing_can_be_kept_the_assumed_way_is_taken(
    unforced: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unforced.parent.write_text("a file, where the folder would be")
    assert waiting(1e-3, 1e-4)() == "slow"
    assert FOLDER in caplog.text


def test_the_environment_wins_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = waiting(1e-3, 1e-4)
    for said, taken in (("assumed", "slow"), (f"{choice.name}=quick", "quick")):
        monkeypatch.setenv(FORCED, said)
        choice.forget()
        assert choice() == taken
    for said in ("quick", f"{choice.name}=quik", "nothing=quick"):
        monkeypatch.setenv(FORCED, said)
        choice.forget()
        with pytest.raises(ConfigError, match=FORCED):
            choice()


def test_the_ways_of_a_checkpoint_are_kept_or_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = waiting(1e-3, 1e-4)
    assert choice() == "quick"
    assert choices.keep({choice.name: "slow"}) == []
    assert choices.made()[choice.name] == "slow"
    lost = choices.keep({choice.name: "vanished", "an old choice": "any"})
    assert len(lost) == 2
    assert choice() == "slow"
    monkeypatch.setenv(FORCED, f"{choice.name}=quick")
    choice.forget()
    (said,) = choices.keep({choice.name: "slow"})
    assert FORCED in said
    assert choice() == "quick"


def run(code: str) -> str:
    """Run code in a process of its own."""
    ended = python("-c", textwrap.dedent(code))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_processes_that_start_together_measure_once(unforced: Path) -> None:
    code = """
    import logging, sys
    logging.basicConfig(level="INFO", stream=sys.stdout)
    from difftransformer.models import choices, matrices
    print("took", matrices.products())
    """
    both = [Python("-c", textwrap.dedent(code)) for _ in range(2)]
    said = [one.ended().stdout for one in both]
    took = [line for text in said for line in text.splitlines() if line.startswith("took")]
    assert len(set(took)) == 1
    assert len(took) == 2
    if unforced.exists():  # there is a choice on this machine
        assert "".join(said).count("speeds:") == 1


WITHOUT = """
import sys, types, torch

class Without:
    "The operations of torch, as they are once private ones are gone."
    def __init__(self, there): self.there = there
    def __getattr__(self, name):
        if name.startswith("_linear") or name.startswith("_scaled_dot_product_flash"):
            raise AttributeError(name)
        return getattr(self.there, name)

torch.ops.mkldnn, torch.ops.aten = Without(torch.ops.mkldnn), Without(torch.ops.aten)
"""
WRONG = """
import torch

class Wrong:
    "The operations of torch, private ones with another meaning."
    def __init__(self, there): self.there = there
    def __getattr__(self, name):
        found = getattr(self.there, name)
        if name.startswith("_linear"):
            return lambda *given: found(*given) + 1
        if name.startswith("_scaled_dot_product_flash") and not name.endswith("backward"):
            return lambda *given, **named: tuple(2 * one for one in found(*given, **named))
        return found

torch.ops.mkldnn, torch.ops.aten = Wrong(torch.ops.mkldnn), Wrong(torch.ops.aten)
"""


@pytest.mark.parametrize("spoiled", [WITHOUT, WRONG], ids=["gone", "another meaning"])
def test_without_private_operations_of_torch_numbers_stay(spoiled: str) -> None:
    code = """
    from difftransformer.models import choices, matrices
    from difftransformer.models.kernels import sdpa
    torch.manual_seed(0)
    x, weight = torch.randn(64, 32, requires_grad=True), torch.randn(48, 32, requires_grad=True)
    out = matrices.linear(x, weight)
    q, k, v = (torch.randn(2, 2, 40, 16, requires_grad=True) for _ in range(3))
    context, lse = sdpa.attention_with_lse(q, k, v, scale=0.25, mask=None)
    loss = (out ** 2).mean() + (context ** 2).sum() + (lse ** 2).mean()
    loss.backward()
    ways = choices.made() | {"lse": sdpa._lse_is_sound()}
    sums = [one.detach().abs().sum().item() for one in (loss, x.grad, weight.grad, q.grad, k.grad)]
    print(ways["products"], ways["lse"], *sums)
    """
    plain = run("import torch\n" + textwrap.dedent(code)).split()
    said = "import logging, sys; logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
    *warnings, last = run(spoiled + said + textwrap.dedent(code)).strip().splitlines()
    taken = last.split()
    slower = [("has no product by oneDNN", "slowly"), ("has no attention with", "slower")]
    for line, parts in zip(warnings, slower, strict=True):
        assert all(part in line for part in (f"torch {torch.__version__}", *parts)), line
    assert plain[1] == "True"
    assert taken[:2] == ["torch", "False"]
    wanted = torch.tensor([float(one) for one in plain[2:]])
    found = torch.tensor([float(one) for one in taken[2:]])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
