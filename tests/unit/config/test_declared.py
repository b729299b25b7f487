"""Claims name the commit that declared them, and it is in the history."""

import subprocess
from pathlib import Path

import pytest

from difftransformer.planning.plan import Plan


def test_every_claim_was_declared_by_a_commit_of_this_history(repository: Path) -> None:
    known = subprocess.run(
        ["git", "log", "--format=%H %as"],
        cwd=repository,
        check=False,
        capture_output=True,
        text=True,
    )
    shallow = (repository / ".git" / "shallow").exists()
    if known.returncode or shallow:
        pytest.skip("no whole git history here")
    commits = dict(line.split() for line in known.stdout.splitlines())
    artifacts = Plan.load(repository / "config").catalogue.artifacts.values()
    for name, claim in ((n, c) for one in artifacts for n, c in one.claims.items()):
        dates = [day for sha, day in commits.items() if sha.startswith(claim.declared.commit)]
        assert dates == [claim.declared.date], name
