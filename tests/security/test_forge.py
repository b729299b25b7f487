"""The forge's workflow: actions that nobody can replace, and no check that is skipped unseen."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

SKIPPING = {
    "test": "import pytest\ndef test_it() -> None:\n    pytest.skip({reason!r})\n",
    "file": "import pytest\npytest.skip({reason!r}, allow_module_level=True)\n",
    "marked": "import pytest\n@pytest.mark.skipif(True, reason={reason!r})\ndef test_it(): ...\n",
}


@pytest.fixture
def steps(repository: Path) -> list[dict[str, Any]]:
    return list(all_steps(repository / ".github" / "workflows"))


def all_steps(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.yml")):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            yield from job["steps"]


def test_actions_are_named_by_commit(steps: list[dict[str, Any]]) -> None:
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert not [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)]


def test_full_history_is_cloned_without_credentials(steps: list[dict[str, Any]]) -> None:
    clones = [step["with"] for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert clones
    assert all(clone == {"fetch-depth": 0, "persist-credentials": False} for clone in clones)


def test_browser_tests_have_a_browser(steps: list[dict[str, Any]]) -> None:
    commands = [step.get("run", "") for step in steps]
    at = {name: next(i for i, command in enumerate(commands) if name in command)
          for name in ("playwright install --with-deps chromium", "CHROMIUM=")}  # fmt: skip
    assert max(at.values()) < commands.index("make test")


@pytest.mark.parametrize(("ci", "failed"), [("true", 3), ("", 0)])
def test_a_skip_on_a_forge_fails_unless_its_reason_is_known(
    ci: str, failed: int, repository: Path, tmp_path: Path
) -> None:
    plugin = (repository / "tests" / "conftest.py").read_text()
    hooks = plugin.partition("MAY_SKIP = ")[2].partition("def pytest_collection_modifyitems")[0]
    imports = "import os, pytest\nfrom collections.abc import Generator\nfrom typing import Any\n"
    (tmp_path / "conftest.py").write_text(f"{imports}MAY_SKIP = {hooks}")
    hidden, allowed = "no whole git history here", "mounting a small file system needs root"
    for form, text in SKIPPING.items():
        (tmp_path / f"test_{form}.py").write_text(text.format(reason=hidden))
        (tmp_path / f"test_known_{form}.py").write_text(text.format(reason=allowed))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors",
         "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout.count(f"skipped, but CI is set: {hidden}") >= failed
    assert f"CI is set: {allowed}" not in ended.stdout
    assert f"{6 - failed} skipped" in ended.stdout
    assert (ended.returncode == 1) == bool(failed), ended.stdout
