"""Generated rows of labeled items, for in-context classification (few-shot).

Layout of a row: items one after the other, each some words of one class followed by its label. A
row draws its classes and a label per class; items draw their class from those of the row
independently, with replacement. Labels differ within a row and are random, so a label can only be
inferred from earlier items of its class. Training rows have no noise; items for evaluation may have
words of other classes of the row (noise).

Shapes: S = rows, I = items, C = classes of a row, W = words of an item.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.generated_rows import FEWEST_CLASSES, ClassificationConfig


class LabeledItems(NamedTuple):
    """Token ids of the words [S, I, W] and labels [S, I] of labeled items, and classes [S, I]."""

    words: NDArray[np.int64]
    labels: NDArray[np.int64]
    classes: NDArray[np.int64]


def label_positions(settings: ClassificationConfig) -> list[int]:
    """Return the positions of a training row's labels among its targets, tokens[1:], [I]."""
    return list(range(settings.words - 1, settings.row_length - 1, settings.item_length))


def training_rows(
    settings: ClassificationConfig, samples: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return generated rows with 2 to max_classes classes, [S, row_length].

    Each number of classes is equally frequent.
    """
    numbers = generator.integers(FEWEST_CLASSES, settings.max_classes + 1, size=samples)
    drawn = generator.integers(0, numbers[:, None], size=(samples, settings.items))
    items = labeled_items(settings, drawn, generator)
    rows = np.concatenate((items.words, items.labels[:, :, None]), axis=2)
    return rows.reshape(samples, settings.row_length)


def labeled_items(
    settings: ClassificationConfig,
    drawn: NDArray[np.int64],
    generator: np.random.Generator,
    noise: NDArray[np.float64] | None = None,
) -> LabeledItems:
    """Draw the words and labels of items whose classes are given.

    Args:
        settings: Dataset settings with the vocabulary and the words per item.
        drawn: Class of each item among those of its row, 0 to C - 1, [S, I].
        generator: Random generator for the row's classes, their labels, and the words.
        noise: Probability that a word of an item is of another class of the row, uniformly chosen,
            [S, I]; None: no noise.
    """
    S, items = drawn.shape
    classes = np.argsort(generator.random((S, settings.num_classes)), axis=1)
    labels = np.argsort(generator.random((S, settings.num_labels)), axis=1)
    chosen = np.argsort(generator.random((S, items, settings.words_per_class)), axis=2)
    of_row = np.repeat(drawn[:, :, None], settings.words, axis=2)
    if noise is not None:
        of_row = _add_noise(of_row, noise, generator)
    class_of = np.take_along_axis(classes, of_row.reshape(S, -1), axis=1).reshape(of_row.shape)
    first = settings.num_labels + class_of * settings.words_per_class
    return LabeledItems(
        words=first + chosen[:, :, : settings.words],
        labels=np.take_along_axis(labels, drawn, axis=1),
        classes=drawn,
    )


def _add_noise(
    classes: NDArray[np.int64], noise: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Change the class of some words to another class of their row, [S, I, W]."""
    numbers = classes.max(axis=(1, 2), keepdims=True) + 1
    assert numbers.min() > 1, "a single class has no other"
    steps = generator.integers(1, numbers, size=classes.shape)
    changed = generator.random(classes.shape) < noise[:, :, None]
    return np.where(changed, (classes + steps) % numbers, classes)
