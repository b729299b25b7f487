"""Names of all files below the results folder; no other module has one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TRAINING, HISTORY, WEIGHTS = "training.json", "history.csv", "model.safetensors"
INTERMEDIATE = "intermediate"
"""Folder of intermediate checkpoints, in a training's state folder and in its model folder."""
MANIFEST, SHARDS = "manifest.json", "shards"
SUMS = ".sha256.json"
"""Ending of the checksum file of a job that has no JSON result."""
REPRODUCIBLE = (
    *("tokenizers", "data", "frequent_ngrams", "runs", "evaluations", "judgments"),
    *("tables", "figures"),
)
"""Folders of a scale whose bytes are the same for the same commit, settings and machine.

The folder of judgments is reproducible only if a judge's endpoint answers the same when it is
called again. Timings, verdicts and the report are not
included, since they record how long jobs took.
"""


def tracking_store(root: Path) -> Path:
    """Return the folder of the MLflow store in a results folder."""
    return root / "mlflow"


@dataclass(frozen=True)
class Layout:
    """Paths of all files of one scale, as strings since Snakemake compares strings.

    Every id in a method's arguments may also be a wildcard: ``"{run}"`` gives a path pattern for a
    Snakemake rule, ``"*"`` gives a glob pattern for `existing`.

    Args:
        root: The results folder, or the URL of the storage for copies of checkpoints.
        scale: Name of the scale.
    """

    root: str
    scale: str

    @classmethod
    def of(cls, home: Path) -> Layout:
        """Return the layout of a scale from its folder ``home``, such as ``results/tiny``."""
        return cls(str(home.parent), home.name)

    @classmethod
    def of_log(cls, log: str) -> Layout | None:
        """Return the layout of the scale that a job's log belongs to; None for other paths."""
        home = log.rpartition("/logs/")[0]
        return cls.of(Path(home)) if home else None

    def existing(self, *patterns: str) -> list[Path]:
        """Return the existing files of this scale that match glob patterns.

        Files are sorted by path within each pattern.

        Hidden files, which killed jobs leave, do not match.
        """
        home, start = Path(self.home), len(self.home) + 1
        paths = (path for pattern in patterns for path in sorted(home.glob(pattern[start:])))
        return [path for path in paths if not path.name.startswith(".")]

    @property
    def home(self) -> str:
        """Path of the folder of this scale."""
        return f"{self.root}/{self.scale}"

    # --- data and models ---

    def data(self, dataset: str, name: str) -> str:
        """Return the path of a file or folder called ``name`` in the folder of a packed dataset."""
        return f"{self.home}/data/{dataset}/{name}"

    def manifest(self, dataset: str) -> str:
        """Return the path of a packed dataset's manifest, which is the file written last."""
        return self.data(dataset, MANIFEST)

    def tokenizer(self, dataset: str, name: str = "tokenizer.json") -> str:
        """Return the path of a file in a dataset's tokenizer folder, by default the tokenizer.

        The folder of the packed dataset has a copy of the tokenizer.
        """
        return f"{self.home}/tokenizers/{dataset}/{name}"

    def ngrams(self, dataset: str, suite: str, ending: str = ".npy") -> str:
        """Return the path of the file of n-grams that are too frequent in a dataset for a suite.

        Args:
            dataset: Name of the packed dataset.
            suite: Name of the evaluation suite, which excludes these n-grams.
            ending: Suffix of the file.
        """
        return f"{self.home}/frequent_ngrams/{dataset}/{suite}{ending}"

    def model(self, run: str, seed: int | str, name: str = "") -> str:
        """Return the path of a finished training's folder, or of ``name`` in that folder."""
        return f"{self.home}/runs/{run}/{seed}{name and f'/{name}'}"

    def training(self, run: str, seed: int | str) -> str:
        """Return the path of a training's result file (JSON)."""
        return self.model(run, seed, TRAINING)

    def weights(self, run: str, seed: int | str) -> str:
        """Return the path of a finished training's weights (safetensors)."""
        return self.model(run, seed, WEIGHTS)

    def history(self, run: str, seed: int | str) -> str:
        """Return the path of a training's history file (CSV), with its metrics over the steps."""
        return self.model(run, seed, HISTORY)

    # --- results ---

    def evaluation(self, suite: str, run: str, seed: int | str) -> str:
        """Return the path of the result file (JSON) of a suite's evaluation of one run and seed."""
        return f"{self.details(suite, run, seed)}.json"

    def details(self, suite: str, run: str, seed: int | str) -> str:
        """Return the path of the folder with the items and arrays of an evaluation."""
        return f"{self.home}/evaluations/{suite}/{run}/{seed}"

    def judgment(self, judge: str, suite: str, run: str, seed: int | str) -> str:
        """Return the path of the result file (JSON) of a judge for the answers to a suite."""
        return f"{self.judgment_details(judge, suite, run, seed)}.json"

    def judgment_details(self, judge: str, suite: str, run: str, seed: int | str) -> str:
        """Return the path of the folder with a judge's judgment of each answer."""
        return f"{self.home}/judgments/{judge}/{suite}/{run}/{seed}"

    @property
    def kept_judgments(self) -> str:
        """Path of the folder that caches judgments of language models, which cost money.

        All scales share the folder.
        """
        return f"{self.root}/kept_judgments"

    def timings(self, evaluation: str) -> str:
        """Return the path of the result file (JSON) of an evaluation's timings."""
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
        """Return the path of a table's files without their suffix."""
        return f"{self.home}/tables/{artifact}"

    def figure(self, artifact: str) -> str:
        """Return the path of a figure's files without their suffix."""
        return f"{self.home}/figures/{artifact}"

    @property
    def verdicts(self) -> str:
        """Path of the file with the verdicts on the papers' claims (JSON).

        The same verdicts as .csv and .md are next to it.
        """
        return f"{self.home}/verdicts.json"

    @property
    def report(self) -> str:
        """Path of the folder with the report's pages, scripts and pictures."""
        return f"{self.home}/report"

    def page(self, artifact: str) -> str:
        """Return the path of an artifact's page in the report; ``index`` is the first page."""
        return f"{self.report}/{artifact}.html"

    @property
    def report_sums(self) -> str:
        """Path of the file with the digests of all files in the report's folder, written last."""
        return f"{self.report}{SUMS}"

    # --- state ---

    @property
    def plan(self) -> str:
        """Path of the folder with the resolved settings that jobs read."""
        return f"{self.home}/plan"

    @property
    def states(self) -> str:
        """Path of the folder with the states from which jobs resume, one folder per rule."""
        return f"{self.home}/state"

    def state(self, *ids: str) -> str:
        """Return the path of the folder with the state of one job.

        Args:
            ids: Rule, run, suite, seed and fingerprint of the job, as far as it has them.
        """
        return "/".join((self.states, *ids))

    def copied_state(self, *ids: str) -> str:
        """Return the URL of the copy of a job's state; here `root` is the URL of all copies.

        Args:
            ids: Rule, run, suite, seed and fingerprint of the job, as far as it has them.
        """
        return "/".join((self.home, *ids))

    @property
    def workflow_lock(self) -> str:
        """Path of the file that the workflow locks while it builds this scale."""
        return f"{self.states}/workflow.lock"

    def log(self, rule: str, *ids: str) -> str:
        """Return the path of the log of one job of a Snakemake rule; ``ids`` identify the job."""
        return f"{'/'.join((self.home, 'logs', rule, *ids))}.log"

    def benchmark(self, rule: str, *ids: str) -> str:
        """Return the path of the file (TSV) with a job's time and memory, measured by Snakemake.

        Args:
            rule: Name of the Snakemake rule.
            ids: Ids of the job, such as run and seed.
        """
        return f"{'/'.join((self.home, 'benchmarks', rule, *ids))}.tsv"
