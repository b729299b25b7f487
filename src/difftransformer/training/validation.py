"""Validation during training, and the history of metrics; nothing here depends on the clock.

Metrics besides the training loss: validation loss, lambda per layer, accuracy per N on recall data.

Shapes: B = sequences, T = positions, S = probe rows, R = queries, D = d_model, V = vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from difftransformer.config.training import ProbeConfig, TrainingConfig
from difftransformer.convert.attention_hooks import attention_layers, capture_lambdas, lambda_means
from difftransformer.data.loader import sequential_windows
from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import recall_batch
from difftransformer.errors import ConfigError
from difftransformer.models.device import autocast
from difftransformer.models.language_model import LanguageModel
from difftransformer.provenance.atomic import write_text
from difftransformer.training.objective import (
    HiddenStates,
    Objective,
    document_end,
    within_documents,
)

Row = dict[str, float | int]
"""Values by column at one step; columns that were not due are absent."""

FIRST_COLUMNS = ("step", "tokens", "loss", "lr", "grad_norm", "validation_loss")

_PROBE_SEED = 7  # the same probe rows for all runs and seeds


class History:
    """The metrics of a run by step, as rows in ascending order of steps.

    Equal runs give equal bytes, resumed or not.
    """

    def __init__(self, rows: Sequence[Mapping[str, float | int]] = ()) -> None:
        self.rows: list[Row] = [dict(row) for row in rows]

    def append(self, row: Row) -> None:
        """Add a row of metrics, whose step is later than all others."""
        assert not self.rows or row["step"] > self.rows[-1]["step"], "steps must ascend"
        self.rows.append(row)

    def last(self, column: str) -> float | None:
        """Return the last value of ``column``, or None if the column has no value."""
        return next((row[column] for row in reversed(self.rows) if column in row), None)

    def first_reaching(self, column: str, threshold: float) -> int | None:
        """Return the first step at which ``column`` is at least ``threshold``, or None."""
        reached = (int(r["step"]) for r in self.rows if column in r and r[column] >= threshold)
        return next(reached, None)

    def write_csv(self, path: Path) -> None:
        """Write the history as CSV to ``path`` atomically.

        Floats are written as repr, so that they are read back exactly.
        """
        names = {column for row in self.rows for column in row}
        columns = [*FIRST_COLUMNS, *sorted(names.difference(FIRST_COLUMNS))]
        cells = ([repr(row[c]) if c in row else "" for c in columns] for row in self.rows)
        write_text(path, "".join(",".join(line) + "\n" for line in (columns, *cells)))


class Validation:
    """Function that computes the validation metrics due at a step; at the last step all are due.

    Args:
        model: The model to validate.
        dataset: A dataset with a validation split.
        config: Training settings.
        objective: The loss of the run.
        unsharded: Returns a context in which the output matrix and embedding are gathered.

    Raises:
        ConfigError: A probe is set on a dataset without recall rows.
    """

    def __init__(
        self,
        model: LanguageModel,
        dataset: PackedDataset,
        config: TrainingConfig,
        objective: Objective,
        unsharded: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._model, self._dataset, self._unsharded = model, dataset, unsharded
        self._config, self._objective = config, objective
        self._follow_tokens = lambda_depends_on_input(model)
        self._probes = _probe_rows(dataset, config.probe) if config.probe is not None else {}

    def __call__(self, hidden_states: HiddenStates, step: int, last: bool) -> dict[str, float]:
        """Return the history columns due at ``step``: validation_loss, accuracy_n{N}, lambda_l{l}.

        Lambda is due in each row of the history, or with the validation loss if it depends on the
        tokens.
        """
        config = self._config
        metrics: dict[str, float] = {}
        if last or (config.validate_every is not None and step % config.validate_every == 0):
            with self._unsharded():
                metrics |= self._validation(hidden_states)
        if not self._follow_tokens and (last or step % config.log_every == 0):
            with self._unsharded():
                metrics |= _constant_lambdas(self._model)
        if config.probe is not None and (last or step % config.probe.every == 0):
            with self._unsharded():
                for needles, (rows, answers) in self._probes.items():
                    metrics[accuracy_column(needles)] = self._accuracy(hidden_states, rows, answers)
        return metrics

    def _validation(self, hidden_states: HiddenStates) -> dict[str, float]:
        """Return validation_loss, and lambda_l{l} where it depends on the tokens."""
        if not self._follow_tokens:
            return {"validation_loss": self._validation_loss(hidden_states)}
        if self._config.compile:  # hooks would recompile the layers
            loss = self._validation_loss(hidden_states)
            lambdas = final_lambdas(self._model, self._dataset, self._config)
        else:
            with capture_lambdas(self._model) as watched:
                loss = self._validation_loss(hidden_states)
            lambdas = lambda_means(watched)
        return {"validation_loss": loss} | lambdas

    def _validation_loss(self, hidden_states: HiddenStates) -> float:
        weight = self._model.output_weight.float()  # as the hidden states
        losses = [
            self._objective.row_losses(hidden_states, weight, batch.to(weight.device))
            for batch in validation_windows(self._dataset, self._config)
        ]
        return float(torch.cat(losses).mean())

    @torch.no_grad()
    def _accuracy(self, hidden_states: HiddenStates, rows: Tensor, answers: list[int]) -> float:
        """Return the fraction of answers that are the argmax over all V tokens."""
        weight, hits = self._model.output_weight, 0
        for micro_batch in torch.split(rows.to(weight.device), self._config.micro_batch):
            hidden = hidden_states(micro_batch[:, :-1])[:, answers]  # [b, R, D]
            choice = (hidden.to(weight.dtype) @ weight.T).argmax(-1)
            hits += int((choice == micro_batch[:, 1:][:, answers]).sum())
        return hits / (len(rows) * len(answers))


def validation_windows(dataset: PackedDataset, config: TrainingConfig) -> Iterator[Tensor]:
    """Yield batches of the validation windows on which the loss is measured, [b, T + 1]."""
    return sequential_windows(
        dataset,
        "validation",
        seq_len=config.seq_len,
        batch_size=config.micro_batch,
        max_tokens=config.validation_tokens,
    )


def lambda_depends_on_input(model: LanguageModel) -> bool:
    """Return whether λ of a model depends on the tokens, as in DIFF V2."""
    return any(layer.lambda_depends_on_input for layer in attention_layers(model))


@torch.no_grad()
def final_lambdas(
    model: LanguageModel, dataset: PackedDataset, config: TrainingConfig
) -> dict[str, float]:
    """Return λ of each layer after training, by metric names lambda_l{l}.

    Layers without λ are left out.

    It is the mean over heads and, if λ depends on the tokens, over the validation tokens. In
    that case all processes of the group call this function.
    """
    model.eval()
    if not lambda_depends_on_input(model):
        return _constant_lambdas(model)
    device = model.output_weight.device
    # Hooks would recompile the layers for a few batches.
    eager = torch.compiler.set_stance("force_eager") if config.compile else nullcontext()
    states = within_documents(model.hidden_states, document_end(config, dataset))
    with capture_lambdas(model) as watched, autocast(device, config.precision), eager:
        for batch in validation_windows(dataset, config):
            states(batch[:, :-1].to(device))
    return lambda_means(watched)


@torch.no_grad()
def _constant_lambdas(model: LanguageModel) -> dict[str, float]:
    """Return λ per layer of a model whose λ does not depend on the tokens."""
    any_input = torch.zeros(1, 1, 1, device=model.output_weight.device)
    lambdas = {
        layer.layer_index: [factors.double().cpu().mean((1, 2))]
        for layer in attention_layers(model)
        if (factors := layer.lambda_per_head(any_input)) is not None
    }
    return lambda_means(lambdas)


def accuracy_column(needles: int) -> str:
    """Return the name of the history column of the retrieval accuracy with ``needles`` needles."""
    return f"accuracy_n{needles}"


def learned_at(history: History, probe: ProbeConfig) -> int | None:
    """Return the first step at which the probe counts retrieval as learned, or None.

    It is the first whose accuracy with learned_needles needles reaches learned_threshold.
    """
    return history.first_reaching(accuracy_column(probe.learned_needles), probe.learned_threshold)


def _probe_rows(dataset: PackedDataset, probe: ProbeConfig) -> dict[int, tuple[Tensor, list[int]]]:
    recall = dataset.manifest.recall
    if recall is None:
        raise ConfigError(
            f"training.probe measures recall, but {dataset.folder} has no recall rows: leave "
            "training.probe out or use a recall dataset"
        )
    return {
        needles: recall_batch(
            recall, needles=needles, queries=probe.queries, samples=probe.samples, seed=_PROBE_SEED
        )
        for needles in probe.needles
    }
