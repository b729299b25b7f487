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
"""Simulated iterations of a loop, more than there are buffers."""


class _Event(NamedTuple):
    """The effect of a line of a block, or of a loop in the block."""

    reads: tuple[str, ...] = ()
    """Buffers that a multiplication reads from this line on."""
    left: int | None = None
    """For a wait: the number of multiplications that may be unfinished after it."""
    fills: str | None = None
    """Buffer that the line fills, if any."""
    ahead: bool = False
    """Whether the buffer is filled for a later iteration."""
    loop: bool = False
    """Whether it is a loop; it reads the buffers of multiplications unfinished at its end."""


def overwritten(ttgir: str, stages: int) -> list[str]:
    """Return the names of buffers that are filled while a multiplication may read them.

    Lines of code that are not understood are returned, too.

    Args:
        ttgir: Code of a kernel in Triton's GPU dialect, after all passes.
        stages: Number of loop iterations in progress at once, as compiled; fetched rows are
            taken to be for the last of these iterations.
    """
    return list(_Code(ttgir, stages).clashes) if "ttng.warp_group_dot" in ttgir else []


class _Code:
    """The code of a kernel, read line by line; each loop is simulated where it ends.

    Attributes:
        clashes: The results of `overwritten`, without duplicates.
    """

    def __init__(self, ttgir: str, stages: int) -> None:
        self.clashes: dict[str, None] = {}
        self._stages = stages
        self._turns_held: dict[str, int] = {}
        self._origin: dict[str, str] = {}
        blocks: list[tuple[str, list[_Event]]] = [("", [])]
        """Indentation and events of the function and of each loop around the line."""
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
        """Return the effect of a line, and record which buffers its results are views of.

        Names are used again in later blocks, so their buffers are recorded line by line.
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
            if not reads[1]:  # the first operand may be in registers, the second is a buffer
                self.clashes[f"line {number + 1}: reads what is not known"] = None
            return _Event(reads=reads) if "isAsync = true" in line else None
        if (match := _FETCH.search(line)) and (name := self._origin.get(match[2], "")):
            return _Event(fills=name, ahead=True)
        if match := _CONCERNS.search(line):
            self.clashes[f"line {number + 1}: {match[0]}"] = None
        return None

    def _go_through(self, events: Sequence[_Event], iterations: int) -> tuple[str, ...]:
        """Simulate iterations of a block; return the buffers still being read after it."""
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
