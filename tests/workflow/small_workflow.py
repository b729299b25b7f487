"""A copy of the repository to run and to edit."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PARTS = ("Snakefile", "workflow", "config", "profiles", "envs", "src")
ROWS = ("transformer", "diff", "diff_no_groupnorm")


@dataclass(frozen=True)
class Checkout:
    """A copy of the repository with its own sources."""

    folder: Path

    def snakemake(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("snakemake", *words, check=check)

    def run(self, module: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if check:
            assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended

    def planned(self, *words: str) -> set[str]:
        """Messages of the jobs that a dry run would do, target rules left out."""
        ended = self.snakemake("--dry-run", *words)
        return set(re.findall(r"^Job \d+: (.+)$", ended.stdout + ended.stderr, re.MULTILINE))

    @contextmanager
    def kept(self) -> Iterator[None]:
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


def copy_of(repository: Path, folder: Path) -> Checkout:
    """Copy what a workflow needs."""
    for part in PARTS:
        source = repository / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    return Checkout(folder)
