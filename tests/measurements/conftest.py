import pytest
from evaluation_fixtures import *  # noqa: F403 - fixtures
from reporting_fixtures import *  # noqa: F403

from difftransformer.evaluation import timing_job


@pytest.fixture
def every_process_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job of timings take the rounds of all its processes here, with what is patched."""
    monkeypatch.setattr(timing_job, "run_in_subprocess", lambda _name, work, *given: work(*given))
