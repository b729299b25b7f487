"""Whether compiled code fetches rows into shared memory that a product is still reading.

On Hopper a product of Triton's reads its operands from shared memory while the program goes on, and
the loop fetches the rows of later turns ahead. Triton 3.6 and 3.7 make too few buffers of rows that
a product of the older kind reads too, one of fewer than 64 queries (triton-lang/triton#6691): the
next rows overwrite those of a product that nobody has waited for. On an H100 that gave
gradients of keys that were off by a tenth and more; others with the fault were right when asked.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_BUFFER = re.compile(r"%(\w+) = ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x")
_FILLED = re.compile(r"%(\w+) = ttg\.local_alloc %")
_VIEW = re.compile(r"%(\w+) = ttg\.memdesc_\w+ %(\w+)")
_PRODUCT = re.compile(r"= ttng\.warp_group_dot %(\w+), %(\w+),.*isAsync = true")
_WAIT = re.compile(r"= ttng\.warp_group_dot_wait .*pendings = (\d+)")
_FETCH = re.compile(r"= ttg\.async_copy_global_to_local %\w+, %(\w+)")
_TURNS = 4
"""Of a loop that are gone through: more than there are buffers."""


class _Event(NamedTuple):
    """What a line of a loop does: reads buffers, waits until so many are left, or fills one."""

    reads: tuple[str, ...] = ()
    left: int | None = None
    fills: str | None = None
    ahead: bool = False
    """Whether what it fills in is for a later turn."""


def overwritten(ttgir: str, stages: int) -> list[str]:
    """Buffers that are filled while a product may read them.

    Args:
        ttgir: A kernel as Triton's GPU dialect has it, after its passes.
        stages: Turns of a loop that are under way at once, as it was compiled with.
    """
    buffers: dict[str, int] = {}
    found: dict[str, None] = {}
    for events in _loops(ttgir, buffers):
        found |= dict.fromkeys(_clashes(events, buffers, stages))
    return list(found)


def _loops(ttgir: str, buffers: dict[str, int]) -> Iterator[list[_Event]]:
    """Events of each loop that has no other inside; notes the buffers and how many turns they hold.

    Names come again in later regions, so what they stand for is read line by line.
    """
    origin: dict[str, str] = {}
    events: list[_Event] | None = None
    end = ""
    for number, line in enumerate(ttgir.splitlines()):
        if match := _BUFFER.search(line):
            name = origin[match[1]] = f"{match[1]}@{number}"
            buffers[name] = int(match[2])
        elif match := _FILLED.search(line):
            name = origin[match[1]] = f"{match[1]}@{number}"
            buffers[name] = 1
            if events is not None:
                events.append(_Event(fills=name))
        elif match := _VIEW.search(line):
            origin[match[1]] = origin.get(match[2], "")
        elif " scf.for " in line:
            events, end = [], line[: len(line) - len(line.lstrip())] + "}"
        elif events is None:
            continue
        elif line.startswith(end):
            yield events
            events = None
        elif match := _PRODUCT.search(line):
            events.append(_Event(reads=tuple(origin.get(one, "") for one in match.groups())))
        elif match := _WAIT.search(line):
            events.append(_Event(left=int(match[1])))
        elif match := _FETCH.search(line):
            events.append(_Event(fills=origin.get(match[1]), ahead=True))


def _clashes(events: Sequence[_Event], buffers: dict[str, int], stages: int) -> Iterator[str]:
    """Go through some turns of a loop with the products that nobody has waited for."""
    open_products: list[tuple[int, tuple[str, ...]]] = []
    for turn in range(_TURNS):
        for event in events:
            if event.reads:
                open_products.append((turn, event.reads))
            elif event.left is not None:
                del open_products[: max(0, len(open_products) - event.left)]
            elif event.fills in buffers:
                count, filled = buffers[event.fills], turn + event.ahead * (stages - 1)
                if any(
                    event.fills in reads and (filled - read) % count == 0
                    for read, reads in open_products
                ):
                    yield event.fills
