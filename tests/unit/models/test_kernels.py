import logging

import pytest
import torch

from difftransformer.errors import BackendError
from difftransformer.models.kernels import choose_backend, eager, flash, flex, kernel, sdpa


def test_auto_picks_and_says_what_it_picked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_backend("auto", "cpu") == "blocked"
    assert "auto: picked blocked on cpu in fp32" in caplog.text
    assert choose_backend("auto", torch.device("cuda", 0), "fp32") == "sdpa"


@pytest.mark.parametrize("name", ["eager", "blocked", "sdpa"])
def test_a_named_backend_is_taken(name: str) -> None:
    assert choose_backend(name, torch.device("cpu")) == name


def test_what_cannot_run_is_refused_with_the_way_out() -> None:
    with pytest.raises(BackendError, match=r"needs an NVIDIA GPU and the device is cpu; take sdpa"):
        choose_backend("flash_attn", "cpu", "bf16")
    with pytest.raises(BackendError, match="unknown backend 'flash'; did you mean 'flash_attn'"):
        choose_backend("flash", "cpu")


@pytest.mark.parametrize(
    ("found", "message"),
    [(None, r"flash-attn is not installed; pip install"), (object(), "half precision only")],
)
def test_flash_attn_on_a_gpu_needs_the_package_and_half_precision(
    monkeypatch: pytest.MonkeyPatch, found: object, message: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)
    with pytest.raises(BackendError, match=message):
        choose_backend("flash_attn", "cuda", "fp32")
    if found is not None:
        assert choose_backend("flash_attn", "cuda", "bf16") == "flash_attn"
        assert choose_backend("auto", "cuda", "bf16") == "flash_attn"
        assert choose_backend("auto", "cuda", "fp32") == "sdpa"


def test_flash_attn_refuses_what_it_cannot_compute() -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(BackendError, match="takes no padding mask; take sdpa"):
        flash.attention(q, q, q, scale=1.0, mask=torch.ones(1, 1, 3, 3, dtype=torch.bool))
    with pytest.raises(BackendError, match=r"got torch\.float32 on cpu; set precision bf16"):
        flash.attention(q, q, q, scale=1.0, mask=None)


@pytest.mark.parametrize("masked", [False, True])
def test_flex_attention_gives_the_same_sums(masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 9, 16, generator=generator) for heads in (4, 2, 2))
    q = q[:, :, 4:]
    mask = (torch.rand(2, 1, 5, 9, generator=generator) > 0.3) if masked else None
    if mask is not None:
        mask[..., 0] = True
    found = flex.attention_with_lse(q, k, v, scale=0.3, mask=mask)
    expected = eager.attention_with_lse(q, k, v, scale=0.3, mask=mask)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("backend", ["blocked", "sdpa"])
def test_one_query_is_answered_from_keys_that_stay_where_they_are(
    backend: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sdpa, "joint_keys")
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 8, 1, 16, generator=generator)
    k = torch.randn(2, 4, 12, 16, generator=generator)[:, :, :9]  # part of a larger buffer
    v = torch.randn(2, 2, 12, 32, generator=generator)[:, :, :9]
    mask = torch.arange(9).view(1, 1, 1, 9) > torch.tensor([2, 5]).view(2, 1, 1, 1)
    given = {"scale": 0.3, "mask": mask if masked else None}
    lam = torch.tensor(0.7)
    expected = eager.differential_attention(q, k, v, lam, **given)
    torch.testing.assert_close(
        kernel(backend).differential_attention(q, k, v, lam, **given), expected
    )
