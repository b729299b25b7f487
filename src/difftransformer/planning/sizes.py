"""Runs with the sizes that `match` takes."""

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
    """Resolves the model of a run, after that of the run it is sized after."""

    resolver: ConfigResolver

    def run(self, name: str) -> RunConfig:
        """Return a run with all its sizes.

        Raises:
            ConfigError: Settings that cannot be, or a `match` that cannot be met.
        """
        return self._sized(name, None)[0]

    def match(self, name: str) -> FFNMatch | None:
        """Return what was chosen for a run; None for one that is as its recipe says."""
        return self._sized(name, None)[1]

    def timed(self, config: Timing, rows: Sequence[str], own: Sequence[str]) -> Models:
        """Return the models to time: ``rows`` as ``config`` sizes them, ``own`` as their runs do.

        Raises:
            ConfigError: Sizes that the model of a row cannot have.
        """
        found: Models = {row: {} for row in rows}
        for name, (key, changes) in config.sizes().items():
            place = f"{self.resolver.scale_file}: timings.{key}"
            models = {row: self._changed(row, changes, place) for row in rows}
            for row, model in models.items():
                found[row][name] = model
                if config.matched and self.resolver.entry(row).match is not None:
                    sized = match_ffn(model, models[rows[0]], "parameters", 1)
                    found[row][name] = replace(model, ffn_dim=sized.ffn_dim)
        for row in own:
            positions = config.calls()[TRAINED_SIZES].seq_len
            model = replace(self.run(row).model, max_positions=positions)
            found.setdefault(row, {})[TRAINED_SIZES] = model
        return found

    def _changed(self, row: str, changes: Mapping[str, Any], place: str) -> ModelConfig:
        own = self.resolver.layers(row).values["model"]
        layers = Layers().add(own, f"runs.yaml: runs.{row}").add(dict(changes), f"{place}.model")
        return validate(ModelConfig, layers.values, f"{place}: row {row}", layers.origin)

    @cache  # noqa: B019 - lives as long as the plan
    def _sized(self, name: str, recipe: str | None) -> tuple[RunConfig, FFNMatch | None]:
        run = self.resolver.run(name, recipe)
        entry = self.resolver.entry(name).match
        if entry is None:
            return run, None
        place = f"{self.resolver.runs_place}.{name}.match"
        lineage(
            self.resolver.runs, name, self.resolver.runs_place, "match.to", self._matched_to, "run"
        )
        if self.resolver.pretrained(entry.to) is not None:
            raise ConfigError(f"{place}.to: '{entry.to}' is not trained here; name a run that is")
        wanted, _ = self._sized(entry.to, recipe or self.resolver.entry(name).recipe)
        seq_len = 1 if entry.by == "parameters" else run.training.seq_len
        try:
            found = _match(run.model, wanted.model, entry.by, seq_len)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        model = replace(run.model, ffn_dim=found.ffn_dim)
        return run.model_copy(update={"model": model}), found

    def _matched_to(self, run: str) -> str | None:
        entry = self.resolver.entry(run).match
        return None if entry is None else entry.to


_match = cache(match_ffn)
"""Many runs differ in training alone."""
