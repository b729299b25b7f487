"""What the scripts of this folder share: their questions one by one, until the time is up.

A question is a function that answers with numbers. Each answer is a line of JSON with the machine
it was found on, in `records/<script>.jsonl`, and is not asked again on the same card with the same
versions. On a CPU (--device cpu) everything is tiny and the fused kernels run in Triton's
interpreter: that is to see that the scripts work, and its answers go to a folder of their own.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any, NamedTuple

RECORDS = Path(__file__).parent / "records"
_CHANCES = 2
"""Of a question that fails or loses the card; another process may have been the cause."""
_HELD_CYCLES = 20_000_000
CLOCKS = "clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw,driver_version"

KERNELS = "difftransformer.models.kernels.fused"
KERNEL_MODULES = ("backward", "backward_keys", "backward_queries", "forward", "launch", "pieces")
OF_KERNELS = ("tune", "attention", "kernels")
"""Scripts that time kernels; what others ask is answered by all code of models."""

Answer = dict[str, Any]
Questions = Mapping[str, Callable[[], Answer]]


class Setting(NamedTuple):
    """How the questions of a script are asked."""

    device: str
    repeats: int

    @property
    def tiny(self) -> bool:
        """Whether it is only to be seen that everything works."""
        return self.device == "cpu"

    def sized(self, real: Any, tiny: Any) -> Any:
        """Return what a card is asked, or what a CPU is."""
        return tiny if self.tiny else real


def parse(description: str | None, scripts: Sequence[str] = ()) -> argparse.Namespace:
    """Read the command line; before torch is imported, since Triton looks at the environment."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="stop before so many (default 9)"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds of each question")
    parser.add_argument("--records", type=Path, help=f"folder of the answers (default {RECORDS})")
    if scripts:
        parser.add_argument("scripts", nargs="*", help=f"which of {', '.join(scripts)}; all")
        parser.add_argument("--adopt", action="store_true", help="write the table, ask nothing")
        parser.add_argument(
            "--processes", type=int, default=0, help="compile ahead in so many, and time nothing"
        )
    parser.add_argument(
        "--longest", type=float, help="seconds of the longest question (default: by script)"
    )
    parser.add_argument("--again", action="store_true", help="ask what has been answered, too")
    arguments = parser.parse_args()
    if scripts and (unknown := set(arguments.scripts) - set(scripts)):
        parser.error(f"no script {', '.join(sorted(unknown))}: there are {', '.join(scripts)}")
    if arguments.repeats < 2:
        parser.error("--repeats must be at least 2: a median needs a spread")
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    if arguments.records is None:
        arguments.records = RECORDS / "tiny" if arguments.device == "cpu" else RECORDS
    arguments.ends = time.monotonic() + 60 * arguments.minutes
    return arguments


def main(script: str, description: str | None, ask: Callable[[Setting], Questions]) -> None:
    """Run one script by itself."""
    arguments = parse(description)
    check_device(arguments.device)
    if left := answer(script, ask, arguments):
        print(f"{left} questions of {script} are left: call again")


def check_device(device: str) -> None:
    """End with one line where there is no such device."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; --device cpu tries the scripts on tiny shapes")
    if util.find_spec("triton") is None:
        sys.exit("Triton is not installed: pip install triton")


def seconds_of(script: str) -> float:
    """Longest time that a question of a script is expected to take on a card."""
    known = {"step": 200.0, "variants": 180.0, "table7": 150.0, "tune": 90.0}
    return known.get(script, 120.0 if script == "training" else 60.0)


def answer(script: str, ask: Callable[[Setting], Questions], arguments: argparse.Namespace) -> int:
    """Ask what has no answer yet while there is time; return how many questions are left."""
    setting = Setting(arguments.device, arguments.repeats)
    longest = 0.0 if setting.tiny else arguments.longest or seconds_of(script)
    open_questions = unanswered(script, ask(setting), arguments)
    for number, (name, question) in enumerate(open_questions.items()):
        if arguments.ends - time.monotonic() < longest:
            return len(open_questions) - number
        line = asked(script, name, question, setting)
        record(arguments.records, line)
        print(script, name, json.dumps(short(line["answer"])), flush=True)
        if line["answer"].get("lost"):
            sys.exit("the card takes nothing more from this process: call again")
    return 0


def asked(script: str, name: str, question: Callable[[], Answer], setting: Setting) -> Answer:
    """Ask one question; return its answer, or how it failed, with where and when it was asked."""
    import torch

    torch.compiler.reset()  # each question has graphs of its own, of lengths that are fixed
    started, before = time.monotonic(), clocks(setting)
    try:
        found = question()
        if setting.device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:  # of kernels and compilers: an answer, too
        found = failure(error)
        if lost(setting):
            found |= {"lost": True}
    if setting.device == "cuda" and "lost" not in found:
        torch.cuda.empty_cache()
    return {
        "script": script,
        "question": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **surroundings(script, setting),
        "repeats": setting.repeats,
        "clocks": {"before": before, "after": clocks(setting)},
        "seconds": round(time.monotonic() - started, 2),
        "answer": found,
    }


def record(folder: Path, line: Answer) -> None:
    """Keep an answer: one line of the file of its script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{line['script']}.jsonl"
    half = path.exists() and path.read_text()[-1:] not in ("", "\n")
    with path.open("a") as file:
        file.write("\n" * half + json.dumps(finite(line), allow_nan=False) + "\n")


def lost(setting: Setting) -> bool:
    """Whether the card computes nothing more in this process, as after an illegal access."""
    import torch

    if setting.device == "cpu":
        return False
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device=setting.device).add_(1).item()
    except torch.OutOfMemoryError:
        return False
    except RuntimeError:
        return True
    return False


def failed(found: Answer) -> bool:
    """Whether all of an answer, or a part, is how it failed."""
    parts = [one for one in found.values() if isinstance(one, dict)]
    return "failed" in found or any("failed" in one for one in parts)


def failure(error: Exception) -> Answer:
    """How a question failed, in a line."""
    import torch

    said = str(error).split("\n", maxsplit=1)[0]
    if isinstance(error, torch.OutOfMemoryError):
        return {"out_of_memory": said}
    return {"failed": f"{type(error).__name__}: {said}"}


def failed_part(name: str, error: Exception, setting: Setting) -> Answer:
    """How a part of a question failed, unless memory or the card has: then it raises."""
    import torch

    if lost(setting):
        raise RuntimeError(f"{name}: {error}") from error
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    return failure(error) | {"within": False}


def finite(value: Any) -> Any:
    """The same with NaN and infinity as text, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def unanswered(script: str, asks: Questions, arguments: argparse.Namespace) -> Questions:
    """Questions without an answer on this card with these versions; half a line is none.

    What failed is asked once more.
    """
    path: Path = arguments.records / f"{script}.jsonl"
    origin = surroundings(script, Setting(arguments.device, arguments.repeats))
    known, failures = set(), Counter[str]()
    for line in [] if arguments.again else lines(path):
        if _is_of(line, origin):
            name, found = line["question"], line.get("answer", {})
            failures[name] += failed(found)
            if failures[name] == _CHANCES or not failed(found):
                known.add(name)
    return {name: one for name, one in asks.items() if name not in known}


def wrong(scripts: Sequence[str], arguments: argparse.Namespace) -> Iterator[str]:
    """What the newest answers with these versions say is not within its bounds, a line each."""
    for script in scripts:
        origin = surroundings(script, Setting(arguments.device, arguments.repeats))
        found: Answer = {}
        for line in lines(arguments.records / f"{script}.jsonl"):
            if _is_of(line, origin):
                found[line["question"]] = line.get("answer", {})
        for question, answered in found.items():
            for part, one in answered.items():
                if isinstance(one, dict) and one.get("within") is False:
                    yield f"WRONG: {script} {question}, {part}: {json.dumps(short(one))}"


def _is_of(line: Answer, origin: Answer) -> bool:
    return all(line.get(key) == origin[key] for key in ("device", "versions"))


def lines(path: Path) -> Iterator[Answer]:
    """What is in a file of records; a call that was killed while it wrote leaves half a line."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def surroundings(script: str, setting: Setting) -> Answer:
    """Card and versions, and what was adopted there, but for what a script itself decides."""
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("triton", "flash-attn", "flash-attn-4", "flash_attn_3"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if setting.device == "cpu":
        return {"device": "cpu", "capability": None, "versions": versions}
    from difftransformer.models.kernels.fused.tiles import measured, part_of, shipped
    from difftransformer.provenance.checksums import json_digest
    from difftransformer.provenance.fingerprint import modules_digest

    card, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    # An answer is about the kernels that it ran, not those of another commit.
    versions["kernels"] = kernels_digest()
    if script == "tune":
        tiles_of = shipped(part_of(capability))
        asked_kernels = import_module("tune").kernels()
        versions["shipped"] = json_digest([tiles_of[str(one)] for one in asked_kernels])[:12]
    elif tiles := digest_of_tiles(measured().get(card)):
        versions["tiles"] = tiles
    if script not in OF_KERNELS:
        versions["models"] = modules_digest(model_modules())[:12]
    return {
        "device": card,
        "capability": list(capability),
        "versions": versions | {"cuda": str(torch.version.cuda)},
    }


def kernels_digest() -> str:
    """What tells the code of the fused kernels from that of another commit."""
    from difftransformer.provenance.fingerprint import modules_digest

    return modules_digest([f"{KERNELS}.{name}" for name in KERNEL_MODULES])[:12]


def model_modules() -> list[str]:
    """Names of all modules of models."""
    from difftransformer import models

    folder = Path(models.__path__[0])
    paths = (path.relative_to(folder.parent.parent) for path in folder.rglob("*.py"))
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


def digest_of_tiles(found: Mapping[str, Any] | None) -> str | None:
    """What tells the tiles that a card has in git, say, from others; None: it has none."""
    from difftransformer.provenance.checksums import json_digest

    return found and json_digest([found[key] for key in ("tiles", "backward")])[:12]


def clocks(setting: Setting) -> dict[str, str] | None:
    """Clocks, temperature and power as the driver's tool tells them; None where there is none."""
    if setting.device == "cpu":
        return None
    command = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    first = told.stdout.splitlines()[0].split(", ")
    return dict(zip(CLOCKS.split(","), first, strict=True))


def timed(steps: Mapping[str, Callable[[], object]], setting: Setting) -> dict[str, list[float]]:
    """Seconds of steps that take turns, round by round; none of one that memory does not hold."""
    import torch

    from difftransformer.evaluation.timing import time_interleaved

    held = _held_by_memory(steps, setting)
    warmup = 0 if setting.tiny else 2
    device = torch.device(setting.device)
    return time_interleaved(held, warmup=warmup, repeats=setting.repeats, device=device)


def _held_by_memory(
    steps: Mapping[str, Callable[[], object]], setting: Setting
) -> dict[str, Callable[[], None]]:
    """Steps that could be run, by then once, as `named`."""
    import torch

    found = {name: named(name, step, setting) for name, step in steps.items()}
    for name in steps:
        try:
            found[name]()
        except torch.OutOfMemoryError:
            found.pop(name)
    return found


def by_itself(
    steps: Mapping[str, Callable[[], object]], setting: Setting
) -> dict[str, list[float]]:
    """Seconds as `timed`, but those of the card alone, without those of who begins its work.

    So it is in a compiled training, which is ahead of its card. A CPU leaves nothing out.
    """
    from difftransformer.evaluation.timing import time_interleaved

    if setting.device == "cpu":
        return timed(steps, setting)
    held = {name: steps[name] for name in _held_by_memory(steps, setting)}
    return time_interleaved(held, warmup=0, repeats=setting.repeats, clock=_card_clock())


def _card_clock() -> Callable[[], float]:
    """A clock that the card reads when it comes by; every second time it waits for that."""
    import torch

    marks: list[torch.cuda.Event] = []

    def read() -> float:
        if not marks:
            torch.cuda.synchronize()
            hold()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) < 2:
            return 0.0
        torch.cuda.synchronize()
        first, last = marks
        marks.clear()
        return float(first.elapsed_time(last)) / 1e3

    return read


def hold() -> None:
    """Keep the card from what is begun next for some 10 ms, so that it waits for nobody then."""
    import torch

    torch.cuda._sleep(_HELD_CYCLES)  # type: ignore[no-untyped-call]


def named(name: str, step: Callable[[], object], setting: Setting) -> Callable[[], None]:
    """A step that ends when the card has done it, and says its name where it loses the card."""
    import torch

    def run() -> None:
        try:
            step()
            if setting.device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            if not lost(setting):
                raise
            raise RuntimeError(f"{name}: {error}") from error

    return run


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high}


def compared(seconds: Mapping[str, list[float]], base: str) -> Answer:
    """Seconds of each, and over those of ``base`` in the same round, where that ran."""
    found: Answer = {"seconds": {name: spread(values) for name, values in seconds.items()}}
    if base in seconds:
        found[f"over {base}"] = {
            name: spread([a / b for a, b in zip(values, seconds[base], strict=True)])
            for name, values in seconds.items()
        }
    return found


def short(found: Answer) -> Answer:
    """Medians in the place of spreads, to be read."""
    return {
        key: short(value)
        if isinstance(value, dict) and "median" not in value
        else float(f"{value['median']:.4g}")
        if isinstance(value, dict)
        else value
        for key, value in found.items()
    }
