"""Options of a section of contrasts."""

from typing import Any

import pytest

from difftransformer.config.validation import validate
from difftransformer.evaluations.contrasts.settings import Options

PAIR = {"row": "a", "baseline": "b"}


def options(*pairs: dict[str, str], **changes: Any) -> Options:
    settings = {"metric": "loss", "column": "valid", "header": "V", "decimals": 3, "axis": "nats"}
    validated: Options = validate(Options, settings | {"pairs": list(pairs)} | changes, "options")
    return validated


def test_pairs_name_rows_of_the_section() -> None:
    contrasts = options(PAIR, {"row": "b", "baseline": "a"}, replications_of="diff_v1")
    contrasts.check_rows(["a", "b"])
    assert (contrasts.replicated, options(PAIR).replicated) == ("diff_v1", None)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"row": "long", "baseline": "b"}, r"pairs\[1\]\.row: 'long' is none .*mean 'longer'"),
        ({"row": "b", "baseline": "c"}, r"pairs\[1\]\.baseline: 'c' is none of its rows"),
        ({"row": "b", "baseline": "b"}, r"pairs\[1\]: needs two"),
        (PAIR, r"pairs\[1\]: needs two"),
    ],
)
def test_a_pair_that_cannot_be_contrasted_is_refused(pair: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(PAIR, pair).check_rows(["a", "b", "longer"])
