"""Finished work to damage: configuration, corpus, tokenizer, shards, a model and its evaluation."""

import contextlib
import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps import step_words
from typer.testing import CliRunner

from difftransformer.cli import app
from difftransformer.config.project import parse_settings
from difftransformer.planning.plan import Plan
from difftransformer.provenance.command_errors import report_errors

TOKENIZER, MANIFEST, TRAINED = "data/tokenizer.json", "data/manifest.json", "run/training.json"
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]

DATASET: dict[str, Any] = {
    "scale": "small",
    "dataset": "corpus",
    "config": {
        "sources": {"files": {"kind": "files", "globs": ["corpus/*"], "license": "CC0-1.0"}},
        "tokenizer": {"kind": "bpe", "vocab_size": 270, "sample_bytes": 10_000},
        "validation_share": 0.3,
        "shard_tokens": 2000,
    },
}
RUN: dict[str, Any] = {
    "scale": "small",
    "run": "diff",
    "dataset": "corpus",
    "model": {
        "vocab_size": 320,
        "d_model": 16,
        "num_layers": 1,
        "ffn_dim": 16,
        "max_positions": 16,
        "attention": {"variant": "diff_v1", "head_dim": 4},
    },
    "training": {
        "steps": 3,
        "seq_len": 16,
        "batch_size": 4,
        "lr": 1e-3,
        "warmup_steps": 1,
        "checkpoint_every": 1,
        "device": "cpu",
    },
}
EVALUATION: dict[str, Any] = {
    "scale": "small",
    "run": "diff",
    "suite": "positions",
    "config": {"kind": "nll_by_position", "length": 16, "first_position": 4},
}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    stderr: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("error: ")]


class Work:
    """A working folder in which every command has run once; relative paths start there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def copy(self, target: Path) -> "Work":
        return Work(Path(shutil.copytree(self.folder, target, symlinks=True)))

    def change(self, slice: str, key: str, value: Any) -> None:
        """Set a dotted key of a slice."""
        content = json.loads(self.path(f"{slice}.json").read_text())
        set_key(content, key, value)
        self.path(f"{slice}.json").write_text(json.dumps(content))

    def train_tokenizer(self) -> Ended:
        return call(*step_words("train_tokenizer", "dataset.json", {}, {"tokenizer": TOKENIZER}))

    def tokenize(self, *more: str) -> Ended:
        files = {"tokenizer": TOKENIZER}, {"manifest": MANIFEST}
        return call(*step_words("tokenize", "dataset.json", *files, *more))

    def pretrain(self, *more: str, **changed: Any) -> Ended:
        files = {"data": MANIFEST}, {"result": TRAINED}
        return call(*step_words("pretrain", "run.json", *files, *more, **changed))

    def evaluate(self, **changed: Any) -> Ended:
        files = {"model": TRAINED, "data": MANIFEST}, {"result": "evaluation/result.json"}
        return call(*step_words("evaluate", "evaluation.json", *files, **changed))

    def export(self, format: str = "huggingface", model: str = "run") -> Ended:
        return call("export", model, "exported", "--format", format)

    def check(self, *more: str) -> Ended:
        return call("check-config", *more)

    def plan(self, **overrides: Any) -> Ended:
        """Read the configuration as the Snakefile does, with what `--config` gives."""
        stderr = io.StringIO()
        words = (
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in overrides.items()
        )
        try:
            with contextlib.redirect_stderr(stderr), report_errors():
                Plan.load(Path("config"), parse_settings(words))
        except SystemExit as stop:
            assert isinstance(stop.code, int)
            return Ended(stop.code, stderr.getvalue())
        return Ended(0, stderr.getvalue())


def set_key(content: Any, key: str, value: Any) -> None:
    """Set a dotted key of mappings, and of lists by number."""
    *groups, last = key.split(".")
    for group in groups:
        content = content[int(group)] if group.isdigit() else content[group]
    content[last] = value


def call(*words: str) -> Ended:
    """Call the command line in this process."""
    tracked = os.environ.get("MLFLOW_TRACKING_URI", "off")
    result = CliRunner().invoke(app, list(words), env={"MLFLOW_TRACKING_URI": tracked})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stderr)


def finish(folder: Path, configuration: Path) -> Work:
    """Run every command once in ``folder``, which is the working directory."""
    work = Work(folder)
    shutil.copytree(configuration, folder / "config", ignore=shutil.ignore_patterns("schema"))
    (folder / "corpus").mkdir()
    texts = (" ".join(WORDS[(i * j) % len(WORDS)] for j in range(i % 30 + 5)) for i in range(120))
    lines = [json.dumps({"text": f"{i} {text}"}) for i, text in enumerate(texts)]
    (folder / "corpus" / "text.jsonl").write_text("\n".join(lines) + "\n")
    for name, content in (("dataset", DATASET), ("run", RUN), ("evaluation", EVALUATION)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    for command in (work.train_tokenizer, work.tokenize, work.pretrain, work.evaluate):
        ended = command()
        assert ended.status == 0, ended.stderr
    return work
