"""Models with their heads counted and, where they say `match`, with the size that this takes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from difftransformer.config.inheritance import Layers, lineage
from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import RunSlice
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import configure, options_class
from difftransformer.models.config import AttentionConfig, ModelConfig
from difftransformer.models.sizes import Match, Measure, match_ffn


@dataclass(frozen=True, eq=False)
class Sizes:
    """Resolves the model of a run, after that of the run it is sized after."""

    catalogue: Catalogue

    def run(self, name: str) -> RunSlice:
        """Return a run with its attention checked and all its sizes.

        Raises:
            ConfigError: An attention that cannot be, or a `match` that cannot be met.
        """
        return self._sized(name, None)[0]

    def match(self, name: str) -> Match | None:
        """Return what was chosen for a run; None for one that is as its setup says."""
        return self._sized(name, None)[1]

    def own(self, row: str) -> ModelConfig:
        """Return the model of a row's run, for what is timed as it is."""
        return self.run(row).model

    def changed(
        self, row: str, changes: Mapping[str, Any], max_positions: int, key: str
    ) -> ModelConfig:
        """Return the model of a row with what the scale's file changes under ``key``.

        Raises:
            ConfigError: Sizes that the model cannot have.
        """
        place = f"{self.catalogue.scale_file}: {key}"
        own = asdict(self.catalogue.run(row).model)
        layers = Layers().add(own, f"runs.yaml: runs.{row}").add(dict(changes), f"{place}.model")
        layers.add({"max_positions": max_positions}, place)
        model = validate(ModelConfig, layers.values, f"{place}.model", layers.origin)
        try:
            _attention(model)
        except ConfigError as error:
            raise ConfigError(f"{place}: row {row}: {error}") from None
        return model

    def matched(self, row: str, model: ModelConfig, to: ModelConfig) -> ModelConfig:
        """Return ``model`` with as many parameters as ``to``, if the row's run has a `match`."""
        entry = self.catalogue.match(row)
        if entry is None:
            return model
        found = match_ffn(model, to, "parameters", entry.multiple_of, 1)
        return replace(model, ffn_dim=found.ffn_dim)

    @cache  # noqa: B019 - lives as long as the plan
    def _sized(self, name: str, setup: str | None) -> tuple[RunSlice, Match | None]:
        slice = self._with_heads(name, setup)
        entry = self.catalogue.match(name)
        if entry is None:
            return slice, None
        place = f"{self.catalogue.runs_place}.{name}.match"
        lineage(
            self.catalogue.runs,
            name,
            self.catalogue.runs_place,
            "match.to",
            self._matched_to,
            "run",
        )
        if self.catalogue.pretrained(entry.to) is not None:
            raise ConfigError(f"{place}.to: '{entry.to}' is not trained here; name a run that is")
        wanted, _ = self._sized(entry.to, setup or self.catalogue.setup(name))
        seq_len = slice.training.seq_len
        try:
            found = self._found(
                json.dumps(asdict(slice.model)),
                json.dumps(asdict(wanted.model)),
                entry.by,
                entry.multiple_of,
                1 if entry.by == "parameters" else seq_len,
            )
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        model = replace(slice.model, ffn_dim=found.ffn_dim)
        return slice.model_copy(update={"model": model}), found

    @staticmethod
    @cache
    def _found(model: str, wanted: str, by: Measure, multiple_of: int, seq_len: int) -> Match:
        """Match two models, by their JSON: many runs differ in training alone."""
        sized, after = (ModelConfig(**json.loads(text)) for text in (model, wanted))
        return match_ffn(sized, after, by, multiple_of, seq_len)

    def _with_heads(self, name: str, setup: str | None) -> RunSlice:
        slice = self.catalogue.run(name, setup)
        try:
            attention = _attention(slice.model)
        except ConfigError as error:
            raise ConfigError(f"{self.catalogue.place_of_model(name)}: {error}") from None
        model = replace(slice.model, attention=asdict(attention))
        return slice.model_copy(update={"model": model})

    def _matched_to(self, run: str) -> str | None:
        entry = self.catalogue.match(run)
        return None if entry is None else entry.to


def _attention(model: ModelConfig) -> AttentionConfig:
    """Return the options of a model's variant, checked, with heads as numbers."""
    place = "model.attention"
    options = validate(options_class(model.attention, place), model.attention, place)
    return configure(options, model.d_model, place)
