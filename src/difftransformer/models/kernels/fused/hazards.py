"""Detect compiled code that overwrites shared memory while a matrix multiplication reads it.

On Hopper, Triton's asynchronous multiplication (wgmma) reads its operands from shared memory while
the program continues, and the loop prefetches the rows of later iterations. Triton 3.6 and 3.7
allocate too few buffers for rows that a synchronous multiplication (of fewer than 64 queries) reads
too (triton-lang/triton#6691), so the next rows overwrite those of an unfinished multiplication. On
an H100 the gradients of keys were off by 10% and more; other kernels with the fault were correct.

An unknown fetch, store or multiplication counts as a clash, so a Triton that emits other code is
noticed. Not checked: buffers that share memory, and registers that a multiplication reads
(triton-lang/triton#9433).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_NAME = r"%([\w$.-]+(?:#\d+)?)"
_BUFFER = re.compile(rf"{_NAME} = ttg\.local_alloc(?: {{[^}}]*}})?( %)?.* -> !ttg\.memdesc<")
_VIEW = re.compile(rf"{_NAME} = ttg\.memdesc_(\w+) {_NAME}.* : !ttg\.memdesc<(\d+)x")
_PRODUCT = re.compile(rf"= ttng\.warp_group_dot {_NAME}, {_NAME},")
_WAIT = re.compile(r"%([\w$.-]+)(?::\d+)? = ttng\.warp_group_dot_wait (.*) \{pendings = (\d+)")
_FETCH = re.compile(rf"= ttg\.async_copy_global_to_local {_NAME}, {_NAME}")
_CONCERNS = re.compile(
    r"ttn?g\.(async_copy_g\w*|async_tma\w*|local_store|warp_group_dot\w*)|scf\.while"
)
_TURNS = 4
"""Iterations of a loop that are simulated: more than there are buffers."""


class _Event(NamedTuple):
    """What a line of a block does, or a loop in it."""

    reads: tuple[str, ...] = ()
    """Buffers that a product reads from now on."""
    left: int | None = None
    """A wait, until so many products are left."""
    fills: str | None = None
    ahead: bool = False
    """Whether what it fills in is for a later turn."""
    loop: bool = False
    """A loop; it reads what its products read that go on behind it."""


def overwritten(ttgir: str, stages: int) -> list[str]:
    """Buffers that are filled while a product may read them, and lines that are not understood.

    Args:
        ttgir: A kernel as Triton's GPU dialect has it, after its passes.
        stages: Turns of a loop that are under way at once, as it was compiled with; rows that are
            fetched are taken to be for the last of them.
    """
    return list(_Code(ttgir, stages).clashes) if "ttng.warp_group_dot" in ttgir else []


class _Code:
    """A kernel, read line by line; each loop is gone through where it ends.

    Attributes:
        clashes: What `overwritten` returns, each once.
    """

    def __init__(self, ttgir: str, stages: int) -> None:
        self.clashes: dict[str, None] = {}
        self._stages = stages
        self._turns_held: dict[str, int] = {}
        self._origin: dict[str, str] = {}
        blocks: list[tuple[str, list[_Event]]] = [("", [])]
        """The function and the loops around the line, by their indentation."""
        for number, line in enumerate(ttgir.splitlines()):
            indent = line[: len(line) - len(line.lstrip())]
            around, events = blocks[-1]
            if " scf.for " in line:
                blocks.append((indent, []))
            elif len(blocks) > 1 and line.startswith(around + "}"):
                blocks.pop()
                reads = self._go_through(events, _TURNS)
                blocks[-1][1].append(_Event(reads=reads, loop=True))
            elif (event := self._event(line, number)) is not None:
                events.append(event)
                if len(blocks) > 1 and indent != around + "  ":
                    self.clashes[f"line {number + 1}: in a branch"] = None
        self._go_through(blocks[0][1], 1)

    def _event(self, line: str, number: int) -> _Event | None:
        """What a line does; notes what its results are views of.

        Names come again in later blocks, so what they stand for is read line by line.
        """
        if match := _BUFFER.search(line):
            name = self._origin[match[1]] = f"{match[1]}@{number}"
            self._turns_held[name] = 1
            return _Event(fills=name) if match[2] else None
        if match := _VIEW.search(line):
            name = self._origin[match[1]] = self._origin.get(match[3], "")
            if match[2] == "index" and name:
                self._turns_held[name] = int(match[4])
            return None
        if match := _WAIT.search(line):
            for index, operand in enumerate(re.findall(_NAME, match[2])):
                self._origin[f"{match[1]}#{index}"] = self._origin.get(operand, "")
            return _Event(left=int(match[3]))
        if match := _PRODUCT.search(line):
            reads = tuple(self._origin.get(operand, "") for operand in match.groups())
            if not reads[1]:  # the first may be in registers, the second is a buffer
                self.clashes[f"line {number + 1}: reads what is not known"] = None
            return _Event(reads=reads) if "isAsync = true" in line else None
        if (match := _FETCH.search(line)) and (name := self._origin.get(match[2], "")):
            return _Event(fills=name, ahead=True)
        if match := _CONCERNS.search(line):
            self.clashes[f"line {number + 1}: {match[0]}"] = None
        return None

    def _go_through(self, events: Sequence[_Event], iterations: int) -> tuple[str, ...]:
        """Go through some turns of a block; return what products read that go on behind it."""
        under_way: list[tuple[int, _Event]] = []
        for iteration in range(iterations):
            for event in events:
                if event.loop:
                    if under_way:
                        self.clashes["a loop that begins while products go on"] = None
                    under_way = [(iteration, event)] if event.reads else []
                elif event.reads:
                    under_way.append((iteration, event))
                elif event.left is not None:
                    del under_way[: max(0, len(under_way) - event.left)]
                elif event.fills is not None:
                    filled = iteration + event.ahead * (self._stages - 1)
                    for begun, product in under_way:
                        same = (filled - begun) % self._turns_held[event.fills] == 0
                        if product.loop or (event.fills in product.reads and same):
                            self.clashes[event.fills] = None
        return tuple(name for _, event in under_way for name in event.reads)
