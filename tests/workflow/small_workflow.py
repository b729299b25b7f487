"""A copy of the repository to run and to edit."""

import os
import re
import subprocess
import sys
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

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{old!r} is not in {name}"
        path.write_text(text.replace(old, new, 1))
