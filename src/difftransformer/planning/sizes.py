"""Model sizes of runs, where `match` in a run's settings sizes the run like another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from difftransformer.config.evaluations import Models
from difftransformer.config.inheritance import Layers, lineage
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.run import RunConfig
from difftransformer.config.timing import TRAINED_SIZES, Timing
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import FFNMatch, match_ffn


@dataclass(frozen=True, eq=False)
class Sizes:
    """The resolved model sizes of runs, with `match` applied."""

    resolver: ConfigResolver

    def run(self, name: str) -> RunConfig:
        """Return the config of a run with all its model sizes resolved.

        Raises:
            ConfigError: The settings are not valid, or no size satisfies `match`.
        """
        return self._sized(name, None)[0]

    def match(self, name: str) -> FFNMatch | None:
        """Return the ffn_dim that `match` chose for a run, with its error; None without `match`."""
        return self._sized(name, None)[1]

    def timed(self, config: Timing, rows: Sequence[str], trained: Sequence[str]) -> Models:
        """Return the models that a benchmark times, by run and name of their size.

        Args:
            config: Settings of the benchmark.
            rows: Runs to time at the sizes in ``config``.
            trained: Runs to time at the sizes of their trainings.

        Raises:
            ConfigError: The model of a run is not valid at a size of the benchmark.
        """
        models_by_row: Models = {row: {} for row in rows}
        for name, (key, changes) in config.sizes().items():
            location = f"{self.resolver.scale_file}: timings.{key}"
            models = {row: self._changed(row, changes, location) for row in rows}
            for row, model in models.items():
                models_by_row[row][name] = model
                if config.matched and self.resolver.entry(row).match is not None:
                    sized = match_ffn(model, models[rows[0]], "parameters", 1)
                    models_by_row[row][name] = replace(model, ffn_dim=sized.ffn_dim)
        for row in trained:
            positions = config.calls()[TRAINED_SIZES].seq_len
            model = replace(self.run(row).model, max_positions=positions)
            models_by_row.setdefault(row, {})[TRAINED_SIZES] = model
        return models_by_row

    def _changed(self, row: str, changes: Mapping[str, Any], location: str) -> ModelConfig:
        values = self.resolver.layers(row).values["model"]
        layers = (
            Layers().add(values, f"runs.yaml: runs.{row}").add(dict(changes), f"{location}.model")
        )
        return validate(ModelConfig, layers.values, f"{location}: row {row}", layers.origin)

    @cache  # noqa: B019 - lives as long as the plan
    def _sized(self, name: str, recipe: str | None) -> tuple[RunConfig, FFNMatch | None]:
        run = self.resolver.run(name, recipe)
        entry = self.resolver.entry(name).match
        if entry is None:
            return run, None
        location = f"{self.resolver.runs_location}.{name}.match"
        lineage(
            self.resolver.runs,
            name,
            self.resolver.runs_location,
            "match.to",
            self._matched_to,
            "run",
        )
        if self.resolver.pretrained(entry.to) is not None:
            raise ConfigError(
                f"{location}.to: '{entry.to}' is not trained here; name a run that is"
            )
        target, _ = self._sized(entry.to, recipe or self.resolver.entry(name).recipe)
        seq_len = 1 if entry.by == "parameters" else run.training.seq_len
        try:
            match = _match(run.model, target.model, entry.by, seq_len)
        except ConfigError as error:
            raise ConfigError(f"{location}: {error}") from None
        model = replace(run.model, ffn_dim=match.ffn_dim)
        return run.model_copy(update={"model": model}), match

    def _matched_to(self, run: str) -> str | None:
        entry = self.resolver.entry(run).match
        return None if entry is None else entry.to


_match = cache(match_ffn)
"""Cached, since many runs have equal models and differ only in their training."""
