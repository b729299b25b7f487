"""Settings of generated rows: key-value retrieval (recall), and labeled items (classification).

The label of a class is drawn per row, so it must be read from the row itself.
"""

from pydantic import model_validator

from difftransformer.config.base import Settings, setting


class RecallConfig(Settings):
    """Rows of key-value retrieval: needles (key, value) in a predictable haystack, then queries."""

    row_length: int = setting(
        65, meaning="Tokens of a training row: the sequence length and one.", unit="tokens", ge=4
    )
    num_keys: int = setting(32, meaning="Keys in the vocabulary.", unit="tokens", ge=1)
    num_values: int = setting(32, meaning="Values in the vocabulary.", unit="tokens", ge=1)
    num_fillers: int = setting(64, meaning="Haystack tokens in the vocabulary.", ge=2)
    max_needles: int = setting(4, meaning="A training row holds 1 to this many needles.", ge=1)
    num_queries: int = setting(16, meaning="Queries at the end of a training row.", ge=1)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary: fillers, keys and values, in ranges without overlap."""
        return self.num_fillers + self.num_keys + self.num_values

    @property
    def vocabulary(self) -> tuple[int, int, int]:
        """Numbers of fillers, keys and values, which determine the meaning of each token id."""
        return self.num_fillers, self.num_keys, self.num_values

    @property
    def haystack_length(self) -> int:
        """Number of tokens of a training row before its first query."""
        return self.row_length - 2 * self.num_queries

    def most_needles(self, haystack_length: int) -> int:
        """Return the most needles with distinct keys and values that fit into a haystack.

        Args:
            haystack_length: Number of tokens of the haystack.
        """
        return min(self.num_keys, self.num_values, haystack_length // 2)

    @model_validator(mode="after")
    def _fits(self) -> "RecallConfig":
        if self.haystack_length < 2 * self.max_needles:
            raise ValueError(
                f"row_length {self.row_length} is too short for {self.max_needles} needles and "
                f"{self.num_queries} queries of 2 tokens each: use at least "
                f"{2 * (self.max_needles + self.num_queries)}"
            )
        if self.max_needles > min(self.num_keys, self.num_values):
            raise ValueError(
                f"max_needles {self.max_needles} is more than num_keys {self.num_keys} or "
                f"num_values {self.num_values}: needles of a row differ in both"
            )
        return self


class ClassificationConfig(Settings):
    """Rows of labeled items: each item consists of words of a class, followed by the class's label.

    The label of a class is drawn anew for each row, so it can only be read from the previous items
    of the row. The words of a class are the same for all rows, so they can be learned.
    """

    items: int = setting(32, meaning="Labeled items in a training row.", unit="items", ge=2)
    words: int = setting(2, meaning="Words of an item, all different.", unit="tokens", ge=1)
    num_classes: int = setting(32, meaning="Classes in the vocabulary.", unit="classes", ge=2)
    words_per_class: int = setting(4, meaning="Words that belong to a class.", unit="words", ge=1)
    num_labels: int = setting(32, meaning="Labels in the vocabulary.", unit="tokens", ge=2)
    max_classes: int = setting(
        8, meaning="A training row has 2 to this many classes.", unit="classes", ge=2
    )

    @property
    def item_length(self) -> int:
        """Number of tokens of an item with its label."""
        return self.words + 1

    @property
    def row_length(self) -> int:
        """Number of tokens of a training row, which is the sequence length plus one."""
        return self.items * self.item_length

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary: the labels, then the words of each class in turn."""
        return self.num_labels + self.num_classes * self.words_per_class

    @property
    def vocabulary(self) -> tuple[int, int, int]:
        """Numbers of labels, classes and words per class, which define every token id."""
        return self.num_labels, self.num_classes, self.words_per_class

    @property
    def most_classes(self) -> int:
        """Maximum number of classes in one row or prompt."""
        return min(self.num_classes, self.num_labels)

    @model_validator(mode="after")
    def _fits(self) -> "ClassificationConfig":
        if self.words > self.words_per_class:
            raise ValueError(
                f"words {self.words} of an item differ, but a class has words_per_class "
                f"{self.words_per_class}"
            )
        if self.max_classes > self.most_classes:
            raise ValueError(
                f"max_classes {self.max_classes} is more than num_classes {self.num_classes} or "
                f"num_labels {self.num_labels}"
            )
        return self


FEWEST_CLASSES = 2
"""Minimum number of classes in a training row."""
GeneratedRows = RecallConfig | ClassificationConfig
"""Settings of generated rows of either kind."""

GENERATED = ("recall", "classification")
"""Names of the builtin sources that generate rows, and of the dataset's settings for them."""
