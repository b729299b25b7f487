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
    "tune",
    "contract",
    "variants",
    "attention",
    "kernels",
    "step",
    "parts",
    "training",
    "memory",
    "decoding",
    "table7",
)
TILES = "tune"
ADOPTED = (TILES, "attention")
"""Those whose answers become tables in git, which the scripts behind them run with."""
FASTER = 1.03
"""Times that a backend is faster before it takes another's place from a length on."""


def main() -> None:
    """Ask script by script, or adopt what was answered."""
    arguments = runs.parse(__doc__, SCRIPTS)
    if arguments.adopt:
        adopt_answers(arguments)
        return
    runs.check_device(arguments.device)
    scripts = [name for name in SCRIPTS if name in (arguments.scripts or SCRIPTS)]
    if arguments.processes:
        # Tiles that are adopted ask all the rest again.
        setting = runs.Setting(arguments.device, arguments.repeats)
        known = arguments.again or TILES not in scripts
        if not known and not runs.unanswered(
            TILES, import_module(TILES).questions(setting), arguments
        ):
            known = is_adopted(TILES, arguments)
        compile_ahead(scripts if known else [TILES], arguments)
        if not known and len(scripts) > 1:
            print(f"call `{TILES}` without --processes, then with --adopt, then as now")
        return
    left = 0
    for script in scripts:
        left += runs.answer(script, import_module(script).questions, arguments)
        if script not in ADOPTED or arguments.again:
            continue
        if left:
            break  # what comes after runs with what this finds
        if not is_adopted(script, arguments):
            said = f"{script} is answered: call with --adopt, then go on"
            break
    else:
        said = "all questions are answered"
    wrong = [*runs.wrong(scripts, arguments)]
    print(*wrong, f"{left} questions are left: call again" if left else said, sep="\n")
    sys.exit(1 if wrong else 0)


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
    for one in answers(arguments.records, "tune"):
        for kernel, wrong in one["answer"].get("wrong", {}).items():
            print(
                f"{one['device']}, {kernel}: wrong with {wrong}; compile_tiles.py should know why"
            )
    for path, found in tables(arguments.records):
        if not found:
            print(f"{path.name}: no answers of a card in {arguments.records}")
            continue
        table = json.loads(path.read_text()) | found
        path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
        print(f"{path.name}: {', '.join(found)}")


def answers(folder: Path, script: str) -> Iterator[dict[str, Any]]:
    """Answers of cards, oldest first."""
    for one in runs.lines(folder / f"{script}.jsonl"):
        if one["device"] != "cpu" and not {"out_of_memory", "failed"} & one["answer"].keys():
            yield one


def tiles(folder: Path) -> dict[str, Any]:
    """What `measured.json` holds: by card its tiles, and the fastest way of the backward pass.

    Of those that are still shipped; how the ways compare is known of the tiles that they were timed
    with.
    """
    from difftransformer.models.kernels.fused.tiles import part_of

    found: dict[str, Any] = {}
    for one in answers(folder, "tune"):
        card = found.setdefault(one["device"], {"tiles": {}, "backward": {}})
        card |= {"capability": one["capability"], "versions": one["versions"], "date": one["date"]}
        answer = one["answer"]
        best = fastest_shipped(answer["seconds"], part_of(tuple(one["capability"])))
        card["tiles"] |= best
        if best == answer["tiles"]:
            by_way = answer["backward"]
            fastest_way = min(by_way, key=lambda way: by_way[way]["median"])
            card["backward"][f"backward/{one['question']}"] = fastest_way
    return found


def fastest_shipped(seconds: dict[str, Any], part: str) -> dict[str, list[int]]:
    """The fastest tile of each kernel among those that are shipped for a part."""
    from difftransformer.models.kernels.fused.tiles import shipped

    found = {}
    for kernel, by_tile in seconds.items():
        tiles = [tile for *tile, _ in shipped(part).get(kernel, [])]
        able = [tile for tile in tiles if str(tile) in by_tile]
        if able:
            found[kernel] = min(able, key=lambda tile: by_tile[str(tile)]["median"])
    return found


def fastest(folder: Path) -> dict[str, Any]:
    """What `by_card.json` holds: by card, operation and width the fastest backend by keys.

    Training decides, and the newest answer; of our kernels those as they are, with the tiles that
    are taken now: of changed ones no card has said that they are fast, or right.
    """
    newest: dict[tuple[str, int, int], dict[str, Any]] = {}
    kernels = runs.kernels_digest()
    taken = {card: runs.digest_of_tiles(one) for card, one in tiles(folder).items()}
    for one in answers(folder, "attention"):
        _, keys, _, width, mode, *others = one["question"].split()
        if mode != "training" or others:
            continue
        where, seconds = (one["device"], int(width), int(keys)), one["answer"]["seconds"]
        versions = one["versions"]
        ours = (
            versions.get("tiles") == taken.get(one["device"]) and versions.get("kernels") == kernels
        )
        if ours:
            newest[where] = seconds
        elif not any("fused" in name for name in newest.get(where, ())):
            newest[where] = {name: time for name, time in seconds.items() if "fused" not in name}
    found: dict[str, Any] = {}
    for (card, width, keys), seconds in sorted(newest.items()):
        operations = found.setdefault(card, {}).setdefault("bf16", {})
        for operation, by_backend in backends(seconds).items():
            by_width = operations.setdefault(operation, [])
            if not by_width or by_width[-1][0] != width:
                by_width.append([width, []])
            steps = by_width[-1][1]
            best = min(sorted(by_backend), key=lambda name: by_backend[name]["median"], default="")
            if best and (not steps or _is_faster(best, steps[-1][1], by_backend)):
                steps.append([keys if steps else 1, best])
    for operations in (one["bf16"] for one in found.values()):
        for _, steps in (pair for by_width in operations.values() for pair in by_width):
            steps.extend([] if steps else [[1, "sdpa"]])  # not measured at any length
    return found


def _is_faster(best: str, held: str, by_backend: dict[str, Any]) -> bool:
    """Whether a backend is faster than the one that the length before has, by more than chance."""
    if held not in by_backend:
        return True
    return bool(by_backend[held]["median"] > FASTER * by_backend[best]["median"])


def backends(seconds: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Seconds of the rows of attention.py that are a backend's, by operation."""
    forms = {
        "attention": "plain {}",
        "attention_with_lse": "lse {}",
        "differential_attention": "{}",
    }
    own = seconds | {"sdpa": seconds["padded (sdpa)"]} if "padded (sdpa)" in seconds else seconds
    return {
        operation: {
            name: own[form.format(name)]
            for name in ("sdpa", "fused", "flash_attn")
            if form.format(name) in own
        }
        for operation, form in forms.items()
    }


if __name__ == "__main__":
    main()
