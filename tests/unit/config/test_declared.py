"""Claims name the commit that declared them: it is in the history, and has them."""

import subprocess
from pathlib import Path

import pytest

from difftransformer.planning.plan import Plan


def test_every_claim_was_declared_by_a_commit_of_this_history(repository: Path) -> None:
    def git(*words: str) -> str:
        ended = subprocess.run(
            ["git", *words], cwd=repository, check=False, capture_output=True, text=True
        )
        return "" if ended.returncode else ended.stdout

    commits = dict(line.split() for line in git("log", "--format=%H %as").splitlines())
    if not commits or (repository / ".git" / "shallow").exists():
        pytest.skip("no whole git history here")
    for name, artifact in Plan.load(repository / "config").catalogue.artifacts.items():
        for claim, declared in ((one, known.declared) for one, known in artifact.claims.items()):
            dates = [day for sha, day in commits.items() if sha.startswith(declared.commit)]
            assert dates == [declared.date], claim
            then = git("show", f"{declared.commit}:config/artifacts/{name}.yaml")
            assert f"\n  {claim}:\n" in then, (claim, declared.commit)
