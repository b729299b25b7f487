"""All questions of this folder in the order of its README, going on where the last call ended.

python benchmarks/gpu/all.py --processes 16   # compile ahead on all cores, where there are many
python benchmarks/gpu/all.py --minutes 9      # as often as there is time; it says what is left
python benchmarks/gpu/all.py --adopt          # what was measured becomes what `auto` takes
"""

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import runs
from ahead import compile_ahead

SCRIPTS = (
    *("contract", "variants", "tune", "attention", "step", "training", "memory", "decoding"),
    "table7",
)
ADOPTED = ("tune", "attention")
"""Those whose answers become tables in git, which the scripts behind them run with."""


def main() -> None:
    """Ask script by script, or adopt what was answered."""
    adopt = "--adopt" in sys.argv
    if adopt:
        sys.argv.remove("--adopt")
    arguments = runs.parse(__doc__, SCRIPTS)
    if adopt:
        adopt_answers(arguments)
        return
    runs.check_device(arguments.device)
    scripts = [name for name in SCRIPTS if name in (arguments.scripts or SCRIPTS)]
    if arguments.processes:
        compile_ahead(scripts, arguments)
        return
    left = 0
    for script in scripts:
        ask = import_module(script).questions
        left += runs.answer(script, ask, arguments, arguments.longest or runs.seconds_of(script))
        if script not in ADOPTED or arguments.again:
            continue
        if left:
            break  # what comes after runs with what this finds
        if not is_adopted(script, arguments):
            print(f"{script} is answered: call with --adopt, then go on")
            return
    print(f"{left} questions are left: call again" if left else "all questions are answered")


def is_adopted(script: str, arguments: argparse.Namespace) -> bool:
    """Whether the table in git has what a script found on the cards of the folder of records."""
    if arguments.device == "cpu":
        return True
    path, found = tables(arguments.records)[ADOPTED.index(script)]
    table = json.loads(path.read_text())
    return all(table.get(card) == one for card, one in found.items())


def tables(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Files in git and what the answers in a folder make of them, in the order of `ADOPTED`."""
    from difftransformer.models.kernels.by_card import TABLE
    from difftransformer.models.kernels.fused.tiles import MEASURED

    return [(MEASURED, tiles(folder)), (TABLE, fastest(folder))]


def adopt_answers(arguments: argparse.Namespace) -> None:
    """Write the tables in git from the answers of all cards in the folder of records."""
    for path, found in tables(arguments.records):
        if not found:
            print(f"{path.name}: no answers of a card in {arguments.records}")
            continue
        table = json.loads(path.read_text()) | found
        path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
        print(f"{path.name}: {', '.join(found)}")


def answers(folder: Path, script: str) -> Iterator[dict[str, Any]]:
    """Answers of cards, oldest first."""
    path = folder / f"{script}.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            one = json.loads(line)
        except json.JSONDecodeError:  # a call that was killed while it wrote
            continue
        if one["device"] != "cpu" and not {"out_of_memory", "failed"} & one["answer"].keys():
            yield one


def tiles(folder: Path) -> dict[str, Any]:
    """What `measured.json` holds: by card its tiles, and which backward pass is faster."""
    found: dict[str, Any] = {}
    for one in answers(folder, "tune"):
        card = found.setdefault(one["device"], {"tiles": {}, "atomic": {}})
        card |= {"capability": one["capability"], "versions": one["versions"], "date": one["date"]}
        card["tiles"] |= one["answer"]["tiles"]
        card["atomic"] |= one["answer"]["atomic"]
    return found


def fastest(folder: Path) -> dict[str, Any]:
    """What `by_card.json` holds: by card and operation the fastest backend from so many keys on.

    Training decides, and the newest answer; only what can do heads of every width is compared.
    Of the log-sum-exp FlexAttention is the only other way, which is as `sdpa`.
    """
    times: dict[str, dict[str, dict[int, dict[str, dict[str, float]]]]] = {}
    for one in answers(folder, "attention"):
        _, keys, _, width, mode = one["question"].split()
        if mode != "training":
            continue
        operations = times.setdefault(one["device"], {})
        for by_keys in operations.values():
            by_keys.get(int(keys), {}).pop(width, None)
        for name, taken in one["answer"]["seconds"].items():
            operation, backend = row(name)
            if backend is not None:
                by_width = operations.setdefault(operation, {}).setdefault(int(keys), {})
                by_width.setdefault(width, {})[backend] = taken["median"]
    return {card: {"bf16": table(operations)} for card, operations in times.items()}


def row(name: str) -> tuple[str, str | None]:
    """Operation and backend of a row of attention.py; None: no backend is that."""
    plain, differential = "attention", "differential_attention"
    found = {
        "fused": (differential, "fused"),
        "padded (sdpa)": (differential, "sdpa"),
        "flash_attn": (differential, "flash_attn"),
        "plain fused": (plain, "fused"),
        "plain sdpa": (plain, "sdpa"),
        "plain flash_attn": (plain, "flash_attn"),
    }
    return found.get(name, (plain, None))


def table(
    operations: dict[str, dict[int, dict[str, dict[str, float]]]],
) -> dict[str, list[list[Any]]]:
    """Steps of each operation, from one key on; the log-sum-exp goes with plain attention."""
    found: dict[str, list[list[Any]]] = {}
    for operation, by_keys in operations.items():
        steps: list[list[Any]] = []
        for keys, by_width in sorted(by_keys.items()):
            able = set.intersection(*map(set, by_width.values())) if by_width else None
            if not able:
                continue
            best = min(sorted(able), key=lambda name: sum(one[name] for one in by_width.values()))
            if not steps or steps[-1][1] != best:
                steps.append([keys if steps else 1, best])
        found[operation] = steps
    if "attention" in found:
        found["attention_with_lse"] = [
            [keys, "fused" if name == "fused" else "sdpa"] for keys, name in found["attention"]
        ]
    return found


if __name__ == "__main__":
    main()
