"""The repository's own configuration at every scale."""

from pathlib import Path

import pytest

from difftransformer.planning.plan import Plan


@pytest.fixture(scope="module", params=["smoke", "tiny", "small", "gpu", "paper"])
def plan(request: pytest.FixtureRequest, repository: Path) -> Plan:
    return Plan.load(repository / "config", {"scale": request.param})
