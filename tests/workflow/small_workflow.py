"""A copy of the repository to run and to edit."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import yaml
from preloaded import python

PARTS = ("Snakefile", "workflow", "config", "profiles", "envs", "src")
ROWS = ("transformer", "diff", "diff_no_groupnorm")
ADAPTATION = "results/smoke/evaluations/adaptation_source/adapted_lora/0.json"
EXTENSION = "results/smoke/evaluations/nll_by_position/long_diff/0.json"
CANARY = "canary-7f3a91"
SECRETS = {
    name: f"{CANARY}-{name}"
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY")
}
"""In the environment of whatever a checkout runs; security/test_secrets.py looks for them."""
HOSTILE = '<script>alert("x")</script>'
"""A tenth of the corpus, and the label of `diff`; security/test_reports.py looks for it."""


@dataclass(frozen=True)
class Checkout:
    """A copy of the repository with its own sources."""

    folder: Path

    def snakemake(self, *words: str, check: bool = True) -> CompletedProcess[str]:
        return self.run("snakemake", *words, check=check)

    def run(self, module: str, *words: str, check: bool = True) -> CompletedProcess[str]:
        ended = python(
            "-m",
            module,
            *words,
            cwd=self.folder,
            env={
                **os.environ,
                **SECRETS,
                "PYTHONPATH": str(self.folder / "src"),
                "OMP_NUM_THREADS": "1",
            },
        )
        if check:
            assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    def planned(self, *words: str) -> set[str]:
        """Messages of the jobs that a dry run would do, target rules left out."""
        ended = self.snakemake("--dry-run", *words)
        return set(re.findall(r"^Job \d+: (.+)$", ended.stdout + ended.stderr, re.MULTILINE))

    @contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Put sources and settings back afterwards."""
        aside = self.folder.with_name(self.folder.name + "-kept")
        for part in ("config", "src"):
            shutil.copytree(self.folder / part, aside / part)
        yield
        for part in ("config", "src"):
            shutil.rmtree(self.folder / part)
            shutil.move(aside / part, self.folder / part)
        shutil.rmtree(aside)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{old!r} is not in {name}"
        path.write_text(text.replace(old, new, 1))


BuildOnce = Callable[[str, Callable[[Path], Checkout]], Checkout]
"""Builds a checkout of a name, or copies what another worker has built."""


def copy_of(repository: Path, folder: Path) -> Checkout:
    """Copy what a workflow needs."""
    for part in PARTS:
        source = repository / part
        if source.is_dir():
            half_written = shutil.ignore_patterns("*.pyc.*")  # by another worker
            shutil.copytree(source, folder / part, ignore=half_written)
        else:
            shutil.copy(source, folder / part)
    return Checkout(folder)


def build_small(repository: Path, folder: Path) -> Checkout:
    """Build what `make_small` makes a checkout of."""
    checkout = make_small(repository, folder)
    checkout.snakemake("--cores", "2")
    return checkout


def make_small(repository: Path, folder: Path) -> Checkout:
    """Three rows of table 6 at smoke scale with one seed: several shards and checkpoints."""
    checkout = copy_of(repository, folder)
    config = folder / "config"
    _change(config / "config.yaml", {"scale": "smoke", "default_targets": ["table6"]})
    table_file = config / "artifacts" / "table6.yaml"
    for path in (config / "artifacts").glob("*.yaml"):
        if path != table_file:
            path.unlink()
    table = yaml.safe_load(table_file.read_text())
    table["sections"][0]["rows"] = [{"run": run} for run in ROWS]
    table_file.write_text(yaml.safe_dump(table))
    registry = yaml.safe_load((config / "registry.yaml").read_text())
    claim = registry["claims"]["V1.loss"] | {"artifact": "table6"}
    _change(config / "registry.yaml", {"claims": {"V1.loss": claim}})
    items = [{"item": "Table 6", "shows": "Ablations", "artifact": "table6"}]
    paper = {"title": "A paper", "source": "somewhere", "items": items}
    (config / "papers.yaml").write_text(yaml.safe_dump({"papers": {"diff_v1": paper}}))
    checkout.edit("config/scales/smoke.yaml", "steps: 20\n", "steps: 200\n")
    checkout.edit(
        "config/scales/smoke.yaml", "tokens: 40000\n", "tokens: 40000\n    shard_tokens: 9000\n"
    )
    hostile = folder.parent / "hostile.jsonl"  # where copies of the folder find it, too
    files = f"{{kind: files, globs: ['{hostile}'], weight: 0.1, license: '{HOSTILE}'}}"
    setting = "{max_bytes: 600000}"
    checkout.edit("config/scales/smoke.yaml", setting, f"{setting}, hostile: {files}")
    checkout.edit("config/runs.yaml", "label: DIFF\n", f"label: 'DIFF {HOSTILE}'\n")
    documents = (json.dumps({"text": f"{HOSTILE} {number} {HOSTILE}"}) for number in range(400))
    hostile.write_text("\n".join(documents) + "\n")
    scale = config / "scales" / "smoke.yaml"
    text = scale.read_text()
    scale.write_text(text[: text.index("\nproxies:")])  # rows of artifacts that are gone
    return checkout


def _change(path: Path, values: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))
