"""Options of a scaling section."""

import pytest

from difftransformer.evaluations.scaling.settings import Options


def test_sizes_need_a_suite_and_two_sizes_and_tokens_need_histories() -> None:
    size, tokens = Options(by="size", compare_at=0.5), Options(by="tokens", compare_at=0.5)
    assert (size.suites, size.reads_histories) == (1, False)
    assert (tokens.suites, tokens.reads_histories) == (0, True)
    with pytest.raises(ValueError, match=r"two sizes.*\['a', 'a'\]"):
        size.check_size_grid(["a", "a"])
    size.check_size_grid(["a", "b"])
    tokens.check_size_grid(["a"])
