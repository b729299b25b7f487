"""What a section of scaling is told decides what it reads."""

import pytest

from difftransformer.evaluations.scaling.settings import Options


def test_sizes_are_evaluated_and_tokens_stand_in_histories() -> None:
    size, tokens = Options(by="size", read_at=0.5), Options(by="tokens", read_at=0.5)
    assert (size.suites, size.reads_histories) == (1, False)
    assert (tokens.suites, tokens.reads_histories) == (0, True)
    assert size.needs_family and tokens.needs_family


def test_one_size_is_no_curve_but_one_budget_is() -> None:
    size, tokens = Options(by="size", read_at=0.5), Options(by="tokens", read_at=0.5)
    with pytest.raises(ValueError, match=r"a curve needs two sizes or more, got \['a', 'a'\]"):
        size.check_family(["a", "a"])
    size.check_family(["a", "b"])
    tokens.check_family(["a"])
