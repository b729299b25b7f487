"""Rows of labeled items, for models that shall classify from what a prompt demonstrates.

Layout of a row: items one after the other, each some words of one class and then the label of that
class. A row draws its classes, and a label for each of them; items draw their class among those of
the row independently, with replacement. Labels differ within a row, and nothing but the row says
which class has which, so a label can be told only from earlier items of its class. That words of
one class stand together is what a language model of such rows learns first. Rows to train on are
free of noise; items to ask a model about may have words that stray to other classes of the row.

Shapes: S = rows, I = items, C = classes of a row, W = words of an item.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.generated_rows import FEWEST_CLASSES, ClassificationConfig


class LabeledItems(NamedTuple):
    """Items of rows: token ids of their words [S, I, W], of their label [S, I], class [S, I]."""

    words: NDArray[np.int64]
    labels: NDArray[np.int64]
    classes: NDArray[np.int64]


def label_positions(settings: ClassificationConfig) -> list[int]:
    """Positions in the targets, tokens[1:], where a label of a training row stands, [I]."""
    return list(range(settings.words - 1, settings.row_length - 1, settings.item_length))


def training_rows(
    settings: ClassificationConfig, samples: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Rows with 2 to max_classes classes, each number equally often, [S, row_length]."""
    numbers = generator.integers(FEWEST_CLASSES, settings.max_classes + 1, size=samples)
    drawn = generator.integers(0, numbers[:, None], size=(samples, settings.items))
    items = labeled_items(settings, drawn, generator)
    rows = np.concatenate((items.words, items.labels[:, :, None]), axis=2)
    return rows.reshape(samples, settings.row_length)


def labeled_items(
    settings: ClassificationConfig,
    drawn: NDArray[np.int64],
    generator: np.random.Generator,
    strays: NDArray[np.float64] | None = None,
) -> LabeledItems:
    """Give items of known classes their words and labels.

    Args:
        settings: Vocabulary, and words of an item.
        drawn: Class of each item among those of its row, 0 to C - 1, [S, I].
        generator: Decides the row's classes, their labels, and the words.
        strays: Probability of each word of an item to be of another class of the row, any of them
            equally often, [S, I]; None for rows without such words.
    """
    S, items = drawn.shape
    classes = np.argsort(generator.random((S, settings.num_classes)), axis=1)
    labels = np.argsort(generator.random((S, settings.num_labels)), axis=1)
    chosen = np.argsort(generator.random((S, items, settings.words_per_class)), axis=2)
    meant = np.repeat(drawn[:, :, None], settings.words, axis=2)
    if strays is not None:
        meant = _stray(meant, strays, generator)
    class_of = np.take_along_axis(classes, meant.reshape(S, -1), axis=1).reshape(meant.shape)
    first = settings.num_labels + class_of * settings.words_per_class
    return LabeledItems(
        words=first + chosen[:, :, : settings.words],
        labels=np.take_along_axis(labels, drawn, axis=1),
        classes=drawn,
    )


def _stray(
    meant: NDArray[np.int64], strays: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Class of each word among those of its row, some changed to another one, [S, I, W]."""
    numbers = meant.max(axis=(1, 2), keepdims=True) + 1
    assert numbers.min() > 1, "a single class has no other"
    steps = generator.integers(1, numbers, size=meant.shape)
    elsewhere = generator.random(meant.shape) < strays[:, :, None]
    return np.where(elsewhere, (meant + steps) % numbers, meant)
