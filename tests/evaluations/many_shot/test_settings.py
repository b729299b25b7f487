"""Invalid settings of a suite, and datasets incompatible with it."""

from typing import Any

import pytest
from small_evaluation import ITEMS
from small_many_shot import suite

from difftransformer.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "trek"}, "unknown task 'trek'; did you mean 'trec'?"),
        ({"classes": None}, "classes: belong to data: generated and are required there"),
        ({"data": "hub"}, "classes: belong to data: generated"),
        (
            {"data": "hub", "classes": None, "word_noise": 0.4},
            "word_noise: belong to data: generated",
        ),
        ({"word_noise": 1.0}, "word_noise"),
        ({"demonstrations": [3, 7]}, r"\[7\] are not multiples of the 3 classes"),
        ({"selection": "random", "order": "alternating"}, "alternating takes the classes in turn"),
        ({"demonstrations": []}, "demonstrations"),
        ({"order": "sorted"}, "order"),
    ],
)
def test_wrong_settings_give_a_one_line_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        suite(**changes)
    assert "\n" not in str(caught.value)


def test_a_suite_and_its_dataset_go_together() -> None:
    assert suite().incompatibility(40, ITEMS) is None
    assert "data: generated does not go" in str(suite().incompatibility(40, None))
    text = suite(data="hub", classes=None, demonstrations=[6])
    assert text.incompatibility(40, None) is None and "data: hub" in str(
        text.incompatibility(40, ITEMS)
    )
    many = suite(classes=7, demonstrations=[7])
    assert many.incompatibility(40, ITEMS) == "classes: 7, the dataset has 6 at most"
    assert "take 29 positions" in str(suite().incompatibility(28, ITEMS))
    assert suite(context_fit="largest").incompatibility(28, ITEMS) is None
