"""Runs with the sizes that `match` takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from difftransformer.config.inheritance import Layers, lineage
from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import RunConfig
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import Match, match_ffn


@dataclass(frozen=True, eq=False)
class Sizes:
    """Resolves the model of a run, after that of the run it is sized after."""

    catalogue: Catalogue

    def run(self, name: str) -> RunConfig:
        """Return a run with all its sizes.

        Raises:
            ConfigError: Settings that cannot be, or a `match` that cannot be met.
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
        own = self.catalogue.layers(row).values["model"]
        layers = Layers().add(own, f"runs.yaml: runs.{row}").add(dict(changes), f"{place}.model")
        layers.add({"max_positions": max_positions}, place)
        return validate(ModelConfig, layers.values, f"{place}: row {row}", layers.origin)

    def matched(self, row: str, model: ModelConfig, to: ModelConfig) -> ModelConfig:
        """Return ``model`` with as many parameters as ``to``, if the row's run has a `match`."""
        entry = self.catalogue.entry(row).match
        if entry is None:
            return model
        found = match_ffn(model, to, "parameters", entry.multiple_of, 1)
        return replace(model, ffn_dim=found.ffn_dim)

    @cache  # noqa: B019 - lives as long as the plan
    def _sized(self, name: str, setup: str | None) -> tuple[RunConfig, Match | None]:
        run = self.catalogue.run(name, setup)
        entry = self.catalogue.entry(name).match
        if entry is None:
            return run, None
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
        wanted, _ = self._sized(entry.to, setup or self.catalogue.entry(name).setup)
        seq_len = 1 if entry.by == "parameters" else run.training.seq_len
        try:
            found = _match(run.model, wanted.model, entry.by, entry.multiple_of, seq_len)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        model = replace(run.model, ffn_dim=found.ffn_dim)
        return run.model_copy(update={"model": model}), found

    def _matched_to(self, run: str) -> str | None:
        entry = self.catalogue.entry(run).match
        return None if entry is None else entry.to


_match = cache(match_ffn)
"""Many runs differ in training alone."""
