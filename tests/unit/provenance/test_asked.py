"""Settings that were asked for last are published, whoever ends last."""

from pathlib import Path

import pytest

from difftransformer.errors import UserError
from difftransformer.provenance.asked import FILE, VARIABLE, asking, require_newest
from difftransformer.provenance.published import publish


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(VARIABLE, "1.0")
    return monkeypatch


def test_what_is_left_over_publishes_nothing(tmp_path: Path, call: pytest.MonkeyPatch) -> None:
    older, newer, main = tmp_path / "a", tmp_path / "b", tmp_path / "result.json"
    with asking(older):
        require_newest()
        call.setenv(VARIABLE, "2.0")
        with asking(newer):
            publish(main, {"of": "newer"})
        before = main.read_bytes()
        with pytest.raises(UserError, match="was asked for with other settings since this job"):
            publish(main, {"of": "older"})
    assert main.read_bytes() == before
    publish(main, {"of": "nobody's job"})


def test_a_job_that_a_scheduler_starts_again_is_still_the_older(
    tmp_path: Path, call: pytest.MonkeyPatch
) -> None:
    call.setenv(VARIABLE, "2.0")
    with asking(tmp_path / "b"):
        pass
    call.setenv(VARIABLE, "1.0")
    with pytest.raises(UserError, match="publishes nothing"), asking(tmp_path / "a"):
        raise AssertionError("it began")
    require_newest()  # no job is at work
    call.setenv(VARIABLE, "3.0")  # the settings of before, asked for again
    with asking(tmp_path / "a"):
        require_newest()


def test_settings_asked_for_twice_and_half_a_note_stop_nobody(
    tmp_path: Path, call: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with asking(tmp_path / "a"):
            require_newest()
    (tmp_path / FILE).write_text('{"at": 3')
    call.delenv(VARIABLE)
    with asking(tmp_path / "b"):
        require_newest()
