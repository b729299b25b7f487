"""Names of all files below the results folder; no other module has one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TRAINING, HISTORY, WEIGHTS = "training.json", "history.csv", "model.safetensors"
INTERMEDIATE = "intermediate"
"""Folder of intermediate checkpoints, in a training's state folder and in its model folder."""
MANIFEST, SHARDS = "manifest.json", "shards"
SUMS = ".sha256.json"
"""Ending of the main output of a job that has no JSON result."""
REPRODUCIBLE = (
    *("tokenizers", "data", "frequent_ngrams", "runs", "evaluations", "judgments"),
    *("tables", "figures"),
)
"""Folders of a scale whose bytes are the same for the same commit, settings and machine.

An endpoint may judge differently when it is called again. Timings, verdicts and the report are not
included, since they record how long jobs took.
"""


def tracking_store(root: Path) -> Path:
    """Return the folder of the MLflow store in a results folder."""
    return root / "mlflow"


@dataclass(frozen=True)
class Layout:
    """Paths of one scale as strings, which Snakemake compares.

    With an id such as ``"{run}"`` a path is a pattern for a rule, with ``"*"`` one for `existing`.

    Args:
        root: The results folder, or the URL of copies of checkpoints.
        scale: Name of the scale.
    """

    root: str
    scale: str

    @classmethod
    def of(cls, home: Path) -> Layout:
        """Return the layout of the folder of a scale, such as ``results/tiny``."""
        return cls(str(home.parent), home.name)

    @classmethod
    def of_log(cls, log: str) -> Layout | None:
        """Return the layout of the scale to which a job's log belongs; None for other files."""
        home = log.rpartition("/logs/")[0]
        return cls.of(Path(home)) if home else None

    def existing(self, *patterns: str) -> list[Path]:
        """Return the files of this scale that match paths with wildcards, sorted by path.

        Hidden files, which killed jobs leave, do not match.
        """
        home, start = Path(self.home), len(self.home) + 1
        paths = (path for pattern in patterns for path in sorted(home.glob(pattern[start:])))
        return [path for path in paths if not path.name.startswith(".")]

    @property
    def home(self) -> str:
        """Folder of the scale."""
        return f"{self.root}/{self.scale}"

    # --- data and models ---

    def data(self, dataset: str, name: str) -> str:
        """File or folder of a packed dataset."""
        return f"{self.home}/data/{dataset}/{name}"

    def manifest(self, dataset: str) -> str:
        """Manifest of a packed dataset, written last."""
        return self.data(dataset, MANIFEST)

    def tokenizer(self, dataset: str, name: str = "tokenizer.json") -> str:
        """Tokenizer of a dataset; the folder of the packed dataset has a copy."""
        return f"{self.home}/tokenizers/{dataset}/{name}"

    def ngrams(self, dataset: str, suite: str, ending: str = ".npy") -> str:
        """N-grams of a dataset that are too frequent for a suite."""
        return f"{self.home}/frequent_ngrams/{dataset}/{suite}{ending}"

    def model(self, run: str, seed: int | str, name: str = "") -> str:
        """Folder of a finished training, or a file or folder in it."""
        return f"{self.home}/runs/{run}/{seed}{name and f'/{name}'}"

    def training(self, run: str, seed: int | str) -> str:
        """Result file of a training."""
        return self.model(run, seed, TRAINING)

    def weights(self, run: str, seed: int | str) -> str:
        """Weights of a finished training."""
        return self.model(run, seed, WEIGHTS)

    def history(self, run: str, seed: int | str) -> str:
        """Curves of a training."""
        return self.model(run, seed, HISTORY)

    # --- results ---

    def evaluation(self, suite: str, run: str, seed: int | str) -> str:
        """Result file of an evaluation."""
        return f"{self.details(suite, run, seed)}.json"

    def details(self, suite: str, run: str, seed: int | str) -> str:
        """Folder of the items and arrays behind an evaluation's metrics."""
        return f"{self.home}/evaluations/{suite}/{run}/{seed}"

    def judgment(self, judge: str, suite: str, run: str, seed: int | str) -> str:
        """Result file of a judge on the answers of a suite."""
        return f"{self.judgment_details(judge, suite, run, seed)}.json"

    def judgment_details(self, judge: str, suite: str, run: str, seed: int | str) -> str:
        """Folder of the single judgments behind a judge's metrics."""
        return f"{self.home}/judgments/{judge}/{suite}/{run}/{seed}"

    @property
    def kept_judgments(self) -> str:
        """Folder of the judgments of a language model, which cost money; shared by all scales."""
        return f"{self.root}/kept_judgments"

    def timings(self, evaluation: str) -> str:
        """Result file of the timings of an evaluation."""
        return f"{self.home}/timings/{evaluation}.json"

    def results(self) -> list[Path]:
        """Return the result files that exist: trainings, evaluations, judgments, timings."""
        return self.existing(
            self.training("*", "*"),
            self.evaluation("*", "*", "*"),
            self.judgment("*", "*", "*", "*"),
            self.timings("*"),
        )

    # --- reports ---

    def table(self, artifact: str) -> str:
        """Stem of a table's files."""
        return f"{self.home}/tables/{artifact}"

    def figure(self, artifact: str) -> str:
        """Stem of a figure's files."""
        return f"{self.home}/figures/{artifact}"

    @property
    def verdicts(self) -> str:
        """Verdicts as JSON; .csv and .md are next to it."""
        return f"{self.home}/verdicts.json"

    @property
    def report(self) -> str:
        """Folder of the report's pages with their scripts and pictures."""
        return f"{self.home}/report"

    def page(self, artifact: str) -> str:
        """Page of an artifact in the report; ``index`` is the first page."""
        return f"{self.report}/{artifact}.html"

    @property
    def report_sums(self) -> str:
        """Digests of all files in the report's folder, written last."""
        return f"{self.report}{SUMS}"

    # --- state ---

    @property
    def plan(self) -> str:
        """Folder of the resolved settings that jobs read."""
        return f"{self.home}/plan"

    @property
    def states(self) -> str:
        """Folder of the state from which jobs resume, by rule."""
        return f"{self.home}/state"

    def state(self, *ids: str) -> str:
        """Folder of the state of one job, by its rule, run, suite, seed and fingerprint."""
        return "/".join((self.states, *ids))

    def copied_state(self, *ids: str) -> str:
        """Copy of a job's state; `root` is the URL of all copies."""
        return "/".join((self.home, *ids))

    @property
    def workflow_lock(self) -> str:
        """Lock of the workflow that builds the scale."""
        return f"{self.states}/workflow.lock"

    def log(self, rule: str, *ids: str) -> str:
        """Log of a job."""
        return f"{'/'.join((self.home, 'logs', rule, *ids))}.log"

    def benchmark(self, rule: str, *ids: str) -> str:
        """Time and memory of a job, as Snakemake measures them."""
        return f"{'/'.join((self.home, 'benchmarks', rule, *ids))}.tsv"
