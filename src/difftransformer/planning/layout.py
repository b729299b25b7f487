"""Where things lie below the results folder. Wildcards are ids only."""

from dataclasses import dataclass

from difftransformer.provenance.published import SUMS


@dataclass(frozen=True)
class Layout:
    """Paths of one scale, as the text that rules compare."""

    root: str
    scale: str

    @property
    def home(self) -> str:
        """Folder of the scale."""
        return f"{self.root}/{self.scale}"

    def manifest(self, dataset: str) -> str:
        """Manifest of a packed dataset, written last."""
        return f"{self.home}/data/{dataset}/manifest.json"

    def tokenizer(self, dataset: str) -> str:
        """Tokenizer of a dataset; a copy lies in the dataset's folder."""
        return f"{self.home}/tokenizers/{dataset}/tokenizer.json"

    def ngrams(self, dataset: str, suite: str) -> str:
        """N-grams of a dataset that are too frequent for a suite."""
        return f"{self.home}/frequent_ngrams/{dataset}/{suite}.npy"

    def training(self, run: str, seed: int) -> str:
        """Result file of a training; weights and history lie beside it."""
        return f"{self.home}/runs/{run}/{seed}/training.json"

    def weights(self, run: str, seed: int) -> str:
        """Weights of a finished training."""
        return f"{self.home}/runs/{run}/{seed}/model.safetensors"

    def model(self, run: str, seed: int) -> str:
        """Folder of a finished training."""
        return f"{self.home}/runs/{run}/{seed}"

    def history(self, run: str, seed: int) -> str:
        """Curves of a training."""
        return f"{self.home}/runs/{run}/{seed}/history.csv"

    def evaluation(self, suite: str, run: str, seed: int) -> str:
        """Result file of an evaluation."""
        return f"{self.home}/evaluations/{suite}/{run}/{seed}.json"

    def details(self, suite: str, run: str, seed: int) -> str:
        """Folder of what stands behind an evaluation's numbers."""
        return self.evaluation(suite, run, seed).removesuffix(".json")

    def judgement(self, judge: str, suite: str, run: str, seed: int) -> str:
        """Result file of a judge on the answers of a suite."""
        return f"{self.home}/judgements/{judge}/{suite}/{run}/{seed}.json"

    @property
    def kept_judgements(self) -> str:
        """Folder of judgements that cost something, shared by all scales."""
        return f"{self.root}/kept_judgements"

    def timings(self, measurement: str) -> str:
        """Result file of the timings of a measurement."""
        return f"{self.home}/timings/{measurement}.json"

    def table(self, artifact: str) -> str:
        """Stem of a table's files."""
        return f"{self.home}/tables/{artifact}"

    def figure(self, artifact: str) -> str:
        """Stem of a figure's files."""
        return f"{self.home}/figures/{artifact}"

    def page(self, artifact: str) -> str:
        """Page of the report: of an artifact, or its first one, ``index``."""
        return f"{self.report}/{artifact}.html"

    @property
    def report(self) -> str:
        """Folder of the report's pages and of all that they need."""
        return f"{self.home}/report"

    @property
    def report_sums(self) -> str:
        """Digests of all in the report's folder, written when it is whole."""
        return f"{self.report}{SUMS}"

    @property
    def verdicts(self) -> str:
        """Verdicts as data; csv and md lie beside it."""
        return f"{self.home}/verdicts.json"

    @property
    def plan(self) -> str:
        """Folder of the slices that jobs get."""
        return f"{self.home}/plan"
