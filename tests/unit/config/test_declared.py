"""Claims name the commit that declared them: it is in the history, and has them."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from difftransformer.config.claims import Declaration
from difftransformer.planning.plan import Plan

Declared = Mapping[tuple[str, str], Declaration]
"""By artifact and claim."""


def git(repository: Path, *words: str) -> str:
    """What a command prints; nothing where it fails."""
    ended = subprocess.run(
        ["git", *words], cwd=repository, check=False, capture_output=True, text=True
    )
    return "" if ended.returncode else ended.stdout


def faults(repository: Path, declared: Declared) -> Iterator[str]:
    """Yield what does not hold of declarations, a line each with its cure."""
    commits = dict(line.split() for line in git(repository, "log", "--format=%H %as").splitlines())

    def has(commit: str, artifact: str, claim: str) -> bool:
        then = git(repository, "show", f"{commit}:config/artifacts/{artifact}.yaml")
        return f"\n  {claim}:\n" in then

    for (artifact, claim), one in declared.items():
        file = f"config/artifacts/{artifact}.yaml"
        place = f"{file}: claims.{claim}.declared"
        if one.commit is None:
            if has("HEAD", artifact, claim):
                since = git(repository, "log", "--reverse", "--format=%h of %as", "--", file)
                yield (
                    f"{place}: the claim is in a commit now: add the `commit` that brought it as "
                    f"it is, with its day; the file is there since {since.splitlines()[0]}"
                )
            continue
        days = {sha: day for sha, day in commits.items() if sha.startswith(one.commit)}
        if len(days) != 1:
            yield (
                f"{place}: {one.commit} is the name of {len(days)} commits of this history: commit "
                "the claim and name that commit in a second one, or leave `commit` out until then"
            )
        elif (day := days.popitem()[1]) != one.date:
            yield f"{place}: date is {one.date}, commit {one.commit} is of {day}: write that day"
        elif not has(one.commit, artifact, claim):
            yield (
                f"{place}: {file} has no such claim in commit {one.commit}: name one that has it; "
                "a claim is committed first, and its commit named in a second one"
            )


def test_every_claim_that_is_in_a_commit_names_it(repository: Path) -> None:
    if not git(repository, "log", "-1") or (repository / ".git" / "shallow").exists():
        pytest.skip("no whole git history here: git fetch --unshallow")
    artifacts = Plan.load(repository / "config").catalogue.artifacts
    declared = {
        (name, claim): known.declared
        for name, artifact in artifacts.items()
        for claim, known in artifact.claims.items()
    }
    found = list(faults(repository, declared))
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commit 0 of one day has no claim, commit 1 of another has MINE.1."""
    folder = tmp_path_factory.mktemp("history")
    file = folder / "config/artifacts/mine.yaml"
    file.parent.mkdir(parents=True)
    git(folder, "init")
    for number, text in enumerate(("claims: {}\n", "claims:\n  MINE.1:\n    text: t\n")):
        file.write_text(text)
        git(folder, "add", ".")
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "-m", "m",
             f"--date=2026-11-2{number}T12:00:00"],
            cwd=folder, check=True,
        )  # fmt: skip
    return folder


@pytest.mark.parametrize(
    ("claim", "commit", "date", "line"),
    [
        ("MINE.1", 1, "2026-11-21", None),
        ("MINE.2", None, "2026-11-22", None),
        ("MINE.1", None, "2026-11-22", "add the `commit`.*since [0-9a-f]{7,} of 2026-11-20$"),
        ("MINE.1", "0123abc", "2026-11-21", "0123abc is the name of 0 commits.*leave `commit` out"),
        ("MINE.1", 1, "2026-11-22", "date is 2026-11-22, .* is of 2026-11-21: write that day"),
        ("MINE.1", 0, "2026-11-20", "no such claim in commit .*: name one that has it"),
    ],
)
def test_a_declaration_that_does_not_hold_is_one_line_with_its_cure(
    claim: str, commit: int | str | None, date: str, line: str | None, history: Path
) -> None:
    if isinstance(commit, int):
        commit = git(history, "log", "--reverse", "--format=%H").split()[commit]
    declared = Declaration(date=date, commit=commit)
    found = list(faults(history, {("mine", claim): declared}))
    if line is None:
        assert not found
    else:
        (said,) = found
        start = f"config/artifacts/mine.yaml: claims.{claim}.declared: "
        assert said.startswith(start) and re.search(line, said) and "\n" not in said


def test_the_claim_of_the_page_holds_before_any_commit(repository: Path) -> None:
    page = (repository / "docs" / "adding_a_measurement.md").read_text()
    artifact = yaml.safe_load(page.rpartition("```yaml\n")[2].partition("```")[0])
    declared = {
        ("my_entropy", name): Declaration.model_validate(claim["declared"])
        for name, claim in artifact["claims"].items()
    }
    assert declared and not list(faults(repository, declared))
