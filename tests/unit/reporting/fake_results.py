"""Result files and histories with the shape of real ones."""

import atexit
import json
import math
import random
import shutil
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import mkdtemp

from fake_adaptation import METHODS, adaptations, swept_adaptations
from fake_configs import RESOLVER, SCALE, SWEPT, base, sweep, width
from fake_curvature import curvature
from fake_dex import results_of_dex
from fake_judgments import judgments
from fake_many_shot import many_shot_results
from fake_mathematics import mathematics
from fake_needles import needle_results
from fake_outliers import outliers
from fake_quantized import quantized
from fake_rest import the_rest
from fake_throughput import decoding, throughput
from fake_understanding import understanding
from fake_v2 import ROWS, SWEPT_HOT, hot_sweeps, v2_results

from difftransformer.config.resolved_artifacts import SweepRow
from difftransformer.provenance.checksums import CHECKSUMS, write_checked

POSITIONS = (16, 22, 30, 41, 56, 77, 106, 145, 199, 273, 374, 512)
# Row -> (final loss, step at which it learns retrieval), as seen at tiny scale.
SHAPES = {
    "transformer": (3.850, None),
    "transformer_halved_heads": (3.853, None),
    "transformer_halved_heads_groupnorm": (3.861, 420),
    "diff": (3.940, 330),
    "diff_no_groupnorm": (3.975, None),
    "diff_lambda_0_8": (3.935, 560),
    "diff_lambda_0_5": (3.944, 380),
    "diff_lambda_0": (3.930, 300),
    "diff_fixed_lambda": (3.945, 310),
    "transformer_groupnorm": (3.858, 440),
    "transformer_halved_heads_gain": (3.852, None),
} | ROWS
STEPS, TOKENS_PER_STEP, PROBE_EVERY = 800, 1500, 20


@dataclass
class FakeResults:
    """Writes files below a folder and keeps their paths."""

    root: Path

    def __post_init__(self) -> None:
        self.results: list[Path] = []
        self.histories: list[Path] = []
        self.paths: dict[tuple[str | None, str, int], Path] = {}  # by suite, run and seed

    def all_results(self, seeds: tuple[int, ...] = (0, 1, 2)) -> "FakeResults":
        """Write what every artifact reads, made once in a process and copied then."""
        made = _made(seeds)
        shutil.copytree(made.root, self.root, copy_function=shutil.copyfile, dirs_exist_ok=True)
        for mine, theirs in ((self.results, made.results), (self.histories, made.histories)):
            mine += [self.root / path.relative_to(made.root) for path in theirs]
        return self

    def runs(self, suite: str | None) -> list[str]:
        """Runs with results of a suite; None: with trainings."""
        return list(dict.fromkeys(run for other, run, _ in self.paths if other == suite))

    def make(self, seeds: tuple[int, ...]) -> "FakeResults":
        for row in SHAPES:
            for seed in seeds:
                self.language_model(row, seed)
                outliers(self, row, seed)
                quantized(self, row, seed)
                quantized(self, f"recall_{row}", seed)
                self.recall_model(f"recall_{row}", seed)
        throughput(self)
        decoding(self)
        for run in ("long_transformer", "long_diff"):
            for seed in seeds:
                self.extended_model(run, seed)
        for seed in seeds:
            needle_results(self, seed)
            many_shot_results(self, seed)
            v2_results(self, seed)
            adaptations(self, seed)
            judgments(self, seed)
            for run, shots in product(("transformer", "diff"), (0, 5)):
                understanding(self, run, seed, shots)
            self.mathematics(seed)
            self.curvature(seed)
            results_of_dex(self, seed)
        for run, seed in product(SWEPT, seeds):
            for entry in sweep(run):
                self.swept(entry, seed)
        swept_adaptations(self, {run: sweep(run) for run in METHODS}, seeds)
        hot_sweeps(self, {run: sweep(run) for run in SWEPT_HOT}, seeds)
        for row, seed in product(("transformer", "diff"), seeds):
            for run in RESOLVER.members(row, "parameters"):
                if run != row:
                    self.language_model(run, seed)
            self.language_model(f"{row}_more_tokens", seed)
        the_rest(self, seeds)
        return self

    def mathematics(self, seed: int) -> None:
        stages = {"math": "mathematics_by_tokens", "reasoning": "mathematics"}
        for row in ("transformer", "transformer_halved_heads_groupnorm", "diff"):
            for stage, suite in stages.items():
                self.language_model(f"{stage}_{row}", seed)
                mathematics(self, f"{stage}_{row}", seed, suite)

    def curvature(self, seed: int) -> None:
        for row in ("transformer", "diff", "diff_fixed_lambda"):
            curvature(self, row, seed)

    def language_model(self, run: str, seed: int) -> None:
        noise = random.Random(f"{run}{seed}")
        shared = random.Random(seed).gauss(0, 0.02)  # seeds share their data order
        final = SHAPES[base(run)][0] + shared + noise.gauss(0, 0.006)
        final += 0.5 * ((128 / width(run)) ** 0.8 - 1)
        points = []
        for step in range(20, STEPS + 1, 20):
            loss = (
                final
                + 3.2 * math.exp(-step / 90)
                + 0.5 * (1 - step / STEPS) ** 2
                + noise.gauss(0, 0.004) * (step < STEPS)
            )
            points.append(
                {
                    "step": step,
                    "loss": loss,
                    "grad_norm": 0.4 + 2 * math.exp(-step / 60),
                    "validation_loss": loss if step % 100 == 0 else None,
                }
            )
        self.history(run, seed, points)
        self.training(run, seed, {"validation_loss": final})
        self.evaluation(
            run, seed, "validation_slices",
            {"loss": final, "ar_hit_loss": 2.1 + (final - 3.85) * 0.6 + noise.gauss(0, 0.008),
             "others_loss": final + 0.35, "ar_hit_share": 0.1634, "tokens": 65536},
            {"kind": "validation_slices", "n": 2, "max_count": 50, "seq_len": 128},
        )  # fmt: skip

    def recall_model(self, run: str, seed: int) -> None:
        noise = random.Random(f"{run}{seed}")
        middle = SHAPES[base(run)][1]
        first = None if middle is None else int(noise.gauss(middle, 90)) // 20 * 20
        if first is not None and first > 560:
            first = None
        points = []
        for step in range(PROBE_EVERY, STEPS + 1, PROBE_EVERY):
            rise = 0.0 if first is None else 1 / (1 + math.exp(-(step - first) / 18 - 2.2))
            accuracy = 0.25 + 0.73 * rise + noise.gauss(0, 0.012)
            points.append(
                {
                    "step": step,
                    "loss": 3 - rise,
                    "accuracy_n2": min(1, accuracy + 0.1),
                    "accuracy_n4": min(1, accuracy),
                    "validation_loss": None,
                }
            )
        first = next((p["step"] for p in points if p["accuracy_n4"] >= 0.9), None)
        self.history(run, seed, points)
        self.training(
            run,
            seed,
            {
                "validation_loss": 2.0,
                "learned": int(first is not None),
                "steps_to_learn": first,
                "accuracy_n4": points[-1]["accuracy_n4"],
            },
        )
        needles = (1, 2, 4, 6, 8, 16)
        decay = {n: (0.99 - 0.012 * n if first else 1 / n + 0.02) for n in needles}
        self.evaluation(
            run, seed, "recall",
            {
                f"accuracy_n{n}": max(0.0, min(1.0, value + noise.gauss(0, 0.015)))
                for n, value in decay.items()
            },
            {"kind": "recall", "needles": list(decay), "queries": 2, "samples": 256},
        )  # fmt: skip

    def extended_model(self, run: str, seed: int) -> None:
        noise, shared = random.Random(f"{run}{seed}"), random.Random(seed).gauss(0, 0.02)
        final = 3.55 + shared + noise.gauss(0, 0.006)
        early = 0.12 if run == "long_transformer" else 0.0
        curve = {
            f"nll_p{position}": final + (0.3 + early) * (1 - math.log(position, 512))
            for position in POSITIONS
        }
        self.history(run, seed, [{"step": STEPS, "loss": final, "validation_loss": final}])
        self.training(run, seed, {"validation_loss": final})
        self.evaluation(
            run, seed, "nll_by_position",
            curve | {"loss": curve["nll_p512"], "documents": 25, "tokens": 25 * 512},
            {"kind": "nll_by_position", "length": 512, "first_position": 16, "num_positions": 12},
        )  # fmt: skip

    def swept(self, entry: SweepRow, seed: int) -> None:
        noise = random.Random(f"{entry.run_id}{seed}")
        away = math.log2(entry.learning_rate / 4e-3)
        loss = SHAPES[base(entry.run)][0] + 0.05 * away**2 + noise.gauss(0, 0.01)
        accuracy = max(0.2, min(1.0, 0.95 - 0.2 * away**2 + noise.gauss(0, 0.05)))
        self.training(
            entry.run_id,
            seed,
            {"validation_loss": loss, "accuracy_n4": accuracy, "steps_to_learn": round(200 * loss)},
            lr=entry.learning_rate,
        )

    def training(
        self, run: str, seed: int, metrics: dict[str, float | int | None], lr: float = 4e-3
    ) -> None:
        sizes = {
            "parameters": 660_000,
            "non_embedding_parameters": 24 * width(run) ** 2 + 128 * len(run),
            "steps": STEPS,
            "tokens": STEPS * TOKENS_PER_STEP,
        }
        if base(run).startswith("diff"):
            sizes |= {"lambda_l0": 0.2 + 0.01 * seed, "lambda_l1": -0.35}
        probe = {
            "needles": [2, 4], "every": PROBE_EVERY, "queries": 2, "samples": 128,
            "learned_needles": 4, "learned_threshold": 0.9,
        }  # fmt: skip
        extended = run.startswith("long_")
        settings = {
            "init_from": run.removeprefix("long_") if extended else None,
            "training": {
                "lr": lr,
                "probe": probe if "recall" in run else None,
                "seq_len": 512 if extended else 128,
                "validation_tokens": 16384,
            },
            "model": {
                "d_model": width(run),
                "vocab_size": 1024,
                "rope_theta": 80000.0 if extended else 10000.0,
            },
        }
        self.write(
            self.root / f"runs/{run}/{seed}/training.json",
            "training",
            run,
            seed,
            None,
            sizes | metrics,
            settings,
        )

    def evaluation(
        self,
        run: str,
        seed: int,
        suite: str,
        metrics: dict[str, float | int | None],
        config: dict[str, object],
    ) -> None:
        path = self.root / f"evaluations/{suite}/{run}/{seed}.json"
        self.write(path, "evaluation", run, seed, suite, metrics, {"config": config})

    def history(self, run: str, seed: int, points: list[dict[str, float | None]]) -> None:
        columns = ["step", "tokens", *(key for key in points[0] if key != "step")]
        lines = [",".join(columns)]
        for point in points:
            row = point | {"tokens": point["step"] * TOKENS_PER_STEP}
            lines.append(",".join("" if row[key] is None else repr(row[key]) for key in columns))
        path = self.root / f"runs/{run}/{seed}/history.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rewrite(path, "\n".join(lines) + "\n")
        self.histories.append(path)

    def write(
        self,
        path: Path,
        kind: str,
        run: str,
        seed: int,
        suite: str | None,
        metrics: dict[str, float | int | None],
        settings: dict[str, object],
    ) -> None:
        fingerprint = f"{abs(hash_text(f'{kind}{run}{seed}{suite}')):064x}"
        provenance = {
            "git_commit": "0123456789abcdef0123456789abcdef01234567",
            "git_dirty": False,
            "versions": {"python": "3.11.2", "torch": "2.13.0"},
            "hardware": {"cpu": "A <CPU> & more", "cores": 2, "memory_gib": 8.0},
            "threads": 1,
            "fingerprint": fingerprint,
            "started": "2026-01-01T00:00:00+00:00",
            "finished": "2026-01-01T00:01:30+00:00",
            "seconds": 90.0,
        }
        subject = f"{run}-{suite}" if suite else run
        result = {
            "kind": kind,
            "job_id": f"{kind}-{subject}-{seed}-{fingerprint[:10]}",
            "scale": SCALE,
            "run": run,
            "seed": seed,
            "suite": suite,
            "metrics": metrics,
            "settings": settings,
            "provenance": provenance,
        }
        write_checked(path, result, _beside(path))
        self.results.append(path)
        self.paths[suite, run, seed] = path


@cache
def _made(seeds: tuple[int, ...]) -> FakeResults:
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return FakeResults(Path(folder) / SCALE).make(seeds)


def rewrite(path: Path, text: str) -> None:
    """Write a history or a result; a result that is there is published again, as by its job."""
    path.write_text(text)
    main = path.with_name("training.json") if path.suffix == ".csv" else path
    if main.is_file():
        content = json.loads(main.read_text())
        del content[CHECKSUMS]
        write_checked(main, content, _beside(main))


def _beside(main: Path) -> list[Path]:
    return [*main.parent.glob("history.csv"), *main.with_suffix("").glob("*")]


def hash_text(text: str) -> int:
    """The same number in every process, unlike ``hash``."""
    return random.Random(text).getrandbits(256)
