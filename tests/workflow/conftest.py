"""A finished small workflow, to edit and to plan again."""

from collections.abc import Iterator

import pytest
from small_workflow import Checkout


@pytest.fixture
def checkout(finished: Checkout) -> Iterator[Checkout]:
    """The finished workflow; its sources and settings are put back afterwards."""
    with finished.kept():
        yield finished
