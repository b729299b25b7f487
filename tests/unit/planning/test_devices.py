import json
from pathlib import Path

import pytest

from difftransformer.planning import devices


@pytest.mark.parametrize("has_cuda", [False, True])
@pytest.mark.parametrize(
    ("device", "backend", "recorded", "expected"),
    [
        ("cpu", "auto", "cuda:0", False),
        ("cuda", "auto", None, True),
        ("cpu", "fused", None, True),
        ("auto", "auto", "cuda:0", True),
        ("auto", "auto", "cpu", False),
        ("auto", "auto", None, None),
    ],
)
def test_device_auto_follows_a_finished_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    backend: str,
    recorded: str | None,
    expected: bool | None,
    has_cuda: bool,
) -> None:
    monkeypatch.setattr(devices, "_sees_cuda", lambda: has_cuda)
    result = tmp_path / "training.json"
    if recorded is not None:
        result.write_text(json.dumps({"settings": {"resolved": {"device": recorded}}}))
    actual = devices.computes_on_gpu(device, [backend], str(result))
    assert actual is (has_cuda if expected is None else expected)
