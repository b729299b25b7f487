"""Everything that pyproject.toml asks for, extras too, is pinned in constraints.txt."""

import re
import tomllib
from pathlib import Path


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_of_every_extra_is_pinned(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    parts = [project["dependencies"], *project["optional-dependencies"].values()]
    required = {canonical(re.split(r"[^\w.-]", line)[0]) for part in parts for line in part}
    required -= {project["name"]}
    lock = (repository / "constraints.txt").read_text()
    pinned = {canonical(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    assert required <= pinned, (
        f"{sorted(required - pinned)}: uv pip compile, as constraints.txt says"
    )
