"""A finished small workflow, to edit and to plan again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_workflow import ADAPTATION, EXTENSION, BuildOnce, Checkout, copy_of


@pytest.fixture(scope="session")
def derived(build_once: BuildOnce, repository: Path) -> Checkout:
    """At smoke scale the Transformer, adapted by LoRA, and DIFF, extended; both evaluated."""

    def build(folder: Path) -> Checkout:
        checkout = copy_of(repository, folder)
        checkout.snakemake(ADAPTATION, EXTENSION, "--cores", "2", "--config", "scale=smoke")
        return checkout

    return build_once("derived", build)


@pytest.fixture
def edited(derived: Checkout) -> Iterator[Checkout]:
    """What is derived; its sources and settings are put back afterwards."""
    with derived.restore_afterwards():
        yield derived


@pytest.fixture
def checkout(finished: Checkout) -> Iterator[Checkout]:
    """The finished workflow; its sources and settings are put back afterwards."""
    with finished.restore_afterwards():
        yield finished
