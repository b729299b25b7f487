"""Splits of documents into training and validation."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.data.documents import Cursor, Document, documents, in_validation


def test_held_out_share() -> None:
    share = sum(in_validation(f"document {n}", 0.1) for n in range(5000)) / 5000
    assert share == pytest.approx(0.1, abs=0.02)


@given(st.sets(st.text("abc", min_size=1), min_size=2, max_size=12), st.floats(1e-9, 0.9))
def test_each_split_of_few_documents_has_at_least_one_document(
    texts: set[str], share: float
) -> None:
    class Texts:
        kind, weight, origin, has_validation, sorted_by_name = "made", 1.0, "here", False, True

        def read(self, split: str, start: Cursor) -> Iterator[Document]:
            for number, text in enumerate(sorted(texts)):
                yield Document(text, "x", Cursor(0, number + 1))

        def identity(self) -> list[Any]:
            return []

    split = {
        name: {document.text for document in documents(Texts(), name, share)}
        for name in ("train", "validation")
    }
    assert all(split.values())
    assert split["train"] | split["validation"] == texts
    assert not split["train"] & split["validation"]
    by_share = {text for text in texts if in_validation(text, share)}
    if by_share and by_share != texts:
        assert split["validation"] == by_share
