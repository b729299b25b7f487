"""All questions of this folder in the order of its README, going on where the last call ended.

python benchmarks/gpu/all.py --processes 16   # compile ahead on all cores, where there are many
python benchmarks/gpu/all.py --minutes 9      # as often as there is time; it says what is left
python benchmarks/gpu/all.py --adopt          # the tiles that were found become those of `fused`
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
    "decoding",
    "table7",
)
TILES = "tune"
"""The script whose answers become a table in git, which the scripts behind it run with."""


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
            known = is_adopted(arguments)
        compile_ahead(scripts if known else [TILES], arguments)
        if not known and len(scripts) > 1:
            print(f"call `{TILES}` without --processes, then with --adopt, then as now")
        return
    left = 0
    for script in scripts:
        left += runs.answer(script, import_module(script).questions, arguments)
        if script != TILES or arguments.again:
            continue
        if left:
            break  # what comes after runs with what this finds
        if not is_adopted(arguments):
            said = f"{script} is answered: call with --adopt, then go on"
            break
    else:
        said = "all questions are answered"
    wrong = [*runs.wrong(scripts, arguments)]
    print(*wrong, f"{left} questions are left: call again" if left else said, sep="\n")
    sys.exit(1 if wrong else 0)


def is_adopted(arguments: argparse.Namespace) -> bool:
    """Whether the table in git has the tiles found on the cards of the folder of records."""
    from difftransformer.models.kernels.fused.tiles import MEASURED

    if arguments.device == "cpu":
        return True
    table = json.loads(MEASURED.read_text())
    return all(table.get(card) == one for card, one in tiles(arguments.records).items())


def adopt_answers(arguments: argparse.Namespace) -> None:
    """Write the table in git from the answers of all cards in the folder of records."""
    from difftransformer.models.kernels.fused.tiles import MEASURED

    for one in answers(arguments.records, TILES):
        for kernel, wrong in one["answer"].get("wrong", {}).items():
            print(
                f"{one['device']}, {kernel}: wrong with {wrong}; compile_tiles.py should know why"
            )
    if not (found := tiles(arguments.records)):
        print(f"{MEASURED.name}: no answers of a card in {arguments.records}")
        return
    table = json.loads(MEASURED.read_text()) | found
    MEASURED.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    print(f"{MEASURED.name}: {', '.join(found)}")


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


if __name__ == "__main__":
    main()
