"""Settings of generated rows of labelled items, whose labels must be read from the row itself."""

from pydantic import model_validator

from difftransformer.config.base import Settings, setting


class ClassificationConfig(Settings):
    """Rows of labelled items: the words of a class and its label, again and again.

    Which label a class has is drawn anew for each row, so it can only be read from the items
    before; which words belong to a class is the same for all rows, so it can be learned.
    """

    items: int = setting(32, meaning="Labelled items in a training row.", unit="items", ge=2)
    words: int = setting(2, meaning="Words of an item, all different.", unit="tokens", ge=1)
    num_classes: int = setting(32, meaning="Classes in the vocabulary.", unit="classes", ge=2)
    words_per_class: int = setting(4, meaning="Words that belong to a class.", unit="words", ge=1)
    num_labels: int = setting(32, meaning="Labels in the vocabulary.", unit="tokens", ge=2)
    min_classes: int = setting(2, meaning="Fewest classes of a training row.", unit="classes", ge=1)
    max_classes: int = setting(8, meaning="Most classes of a training row.", unit="classes", ge=2)

    @property
    def item_length(self) -> int:
        """Tokens of an item with its label."""
        return self.words + 1

    @property
    def row_length(self) -> int:
        """Tokens of a training row: the sequence length and one."""
        return self.items * self.item_length

    @property
    def vocab_size(self) -> int:
        """Labels, then the words of one class after the other."""
        return self.num_labels + self.num_classes * self.words_per_class

    @property
    def vocabulary(self) -> tuple[int, int, int]:
        """What decides the meaning of a token id: labels, classes and words of a class."""
        return self.num_labels, self.num_classes, self.words_per_class

    @property
    def most_classes(self) -> int:
        """Classes that one row or prompt can have."""
        return min(self.num_classes, self.num_labels)

    @model_validator(mode="after")
    def _fits(self) -> "ClassificationConfig":
        if self.words > self.words_per_class:
            raise ValueError(
                f"words {self.words} of an item differ, but a class has words_per_class "
                f"{self.words_per_class}"
            )
        if not self.min_classes <= self.max_classes <= self.most_classes:
            raise ValueError(
                f"min_classes {self.min_classes} to max_classes {self.max_classes} must ascend and "
                f"stay within num_classes {self.num_classes} and num_labels {self.num_labels}"
            )
        return self
