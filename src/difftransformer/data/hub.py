"""Text from a dataset of the Hugging Face hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from difftransformer.config.data import HubSource
from difftransformer.data.documents import Cursor, Document
from difftransformer.data.readers import require_unicode
from difftransformer.errors import DataError


class Hub:
    """A dataset of the Hugging Face hub (or a local folder in its layout), streamed."""

    kind = "hub"

    def __init__(self, name: str, config: HubSource) -> None:
        self.weight = config.weight
        self.origin = f"{config.dataset} at {config.revision}"
        self._name = name
        self._config = config

    @property
    def has_validation(self) -> bool:
        """Whether a validation split is named."""
        return self._config.validation_split is not None

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield the rows of the split."""
        config = self._config
        held_out = split == "validation" and config.validation_split is not None
        chosen = config.validation_split if held_out else config.split
        try:
            rows = iter(self._load(str(chosen)).skip(start.record))
        except Exception as error:  # the datasets library raises dozens of kinds
            raise self._failure(error) from None
        number = start.record
        while True:
            try:
                row = next(rows, None)
            except Exception as error:  # network errors of any transport
                raise self._failure(error) from None
            if row is None:
                return
            text = self._text(row)
            if not isinstance(text, str):
                raise DataError(
                    f"source {self._name}: row {number} of {config.dataset} has no text in "
                    f"{config.template or config.text_field!r}; its fields are "
                    f"{', '.join(sorted(row))}"
                )
            require_unicode(text, f"source {self._name}: row {number} of {config.dataset}")
            number += 1
            yield Document(text, config.licence, Cursor(start.repeat, 0, number))

    def _text(self, row: dict[str, Any]) -> Any:
        """Return the text of a row; None where a column of the template is missing."""
        if self._config.template is None:
            return row.get(self._config.text_field)
        try:
            return self._config.template.format_map(row)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            return None

    def _load(self, split: str) -> Any:
        import datasets

        config = self._config
        local = Path(config.dataset).is_dir()
        return datasets.load_dataset(
            config.dataset,
            config.config,
            split=split,
            revision=None if local else config.revision,
            streaming=True,
        )

    def _failure(self, error: Exception) -> DataError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DataError(
            f"source {self._name}: {self._config.dataset} at {self._config.revision} cannot be "
            f"loaded ({type(error).__name__}: {reason}); check name, revision and network"
        )

    def identity(self) -> list[Any]:
        """Return the settings: the pinned revision says it all."""
        return [self._config.model_dump(mode="json")]
