"""The training loop: steps, validation, history, checkpoints, stop signals, learning-rate schedule.

Shapes: B = sequences, T = positions.
"""

import logging
import time
from collections.abc import Callable
from math import cos, isfinite, pi

import torch
from torch import Tensor

from difftransformer.config.training import TrainingConfig
from difftransformer.data.loader import BatchLoader
from difftransformer.errors import DivergenceError, UserError
from difftransformer.models.device import autocast
from difftransformer.models.language_model import LanguageModel
from difftransformer.models.linear import MATMUL, matmul_backend
from difftransformer.provenance.command_errors import is_out_of_memory
from difftransformer.tracking.tracker import Tracker
from difftransformer.training.checkpoint import CheckpointStore, TrainState
from difftransformer.training.compiled import compiled_states, measured_states
from difftransformer.training.interrupt import Interrupted, StopRequest
from difftransformer.training.method import Method
from difftransformer.training.objective import HiddenStates, Objective, within_documents
from difftransformer.training.process import device_type_of, restore_rng, rng_state, rng_tensors
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.progress import Progress
from difftransformer.training.validation import History, learned_at

logger = logging.getLogger(__name__)

Validate = Callable[[HiddenStates, int, bool], dict[str, float]]
"""Function of hidden states, step and whether it is the last; returns the history columns due."""


class Trainer:
    """The training loop of one run, which trains ``model`` up to `last_step`.

    Everything that decides the bits of the run is in its `TrainState`; everything that depends on
    the clock goes only to the log, the heartbeat and the tracker.

    Args:
        model: The model, sharded over the process group.
        method: The model's trainable parameters and their optimizer.
        config: Training settings.
        loader: Loader of this process's part of each batch.
        objective: The loss.
        validate: Function that returns the validation metrics due at a step.
        device: Device of this process.
        group: The process group.

    Attributes:
        parent: Digest of the initial weights of a continued run; "" from scratch.
        earlier_seconds: Wall time of earlier attempts, up to the checkpoint that was resumed.
    """

    parent: str = ""

    def __init__(
        self,
        model: LanguageModel,
        method: Method,
        config: TrainingConfig,
        *,
        loader: BatchLoader,
        objective: Objective,
        validate: Validate,
        device: torch.device,
        group: ProcessGroup,
    ) -> None:
        self.model, self.config = model, config
        self.step, self.history = 0, History()
        self.diverged_at: int | None = None
        self.earlier_seconds, self._began = 0.0, time.monotonic()
        self._loader, self._objective, self._validate = loader, objective, validate
        self._device, self._group = device, group
        self._matmul_backend = matmul_backend() if device.type == "cpu" else None
        self._method = method
        states = compiled_states(model) if config.compile else model.hidden_states
        self._hidden_states: HiddenStates = within_documents(states, objective.end)
        self._loss = group.wrap_loss(model, self._micro_batch_loss)
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss, gradient norm
        self._summed_steps = 0
        # Reading a value at each step would stall a GPU.
        self._checks_each_step = device.type == "cpu"

    def train(
        self,
        store: CheckpointStore,
        progress: Progress,
        tracker: Tracker,
        stop: StopRequest,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        """Train to the last step, or to divergence if ``on_divergence`` is "record".

        Raises:
            DivergenceError: NaN, infinity or a loss above ``divergence_loss``.
            UserError: Out of memory.
            CheckpointError: A checkpoint could not be written.
            Interrupted: Stop signal; a checkpoint was written first.
        """
        if self.step < self.last_step:
            progress.report(self.step, self.last_step, self._latest_loss(), self._next_lr())
        try:
            while self.step < self.last_step:
                self._advance(store, progress, tracker, stop)
                after_step()
        except DivergenceError as error:
            if self.config.on_divergence == "stop":
                raise
            self.diverged_at = self.step
            logger.warning("%s; the run ends here, as training.on_divergence is record", error)
        except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is one
            if not is_out_of_memory(error):
                raise
            raise UserError(
                f"out of memory on {self._device} at {self.config.micro_batch} x "
                f"{self.config.seq_len} tokens: lower training.micro_batch_size (gradients still "
                "accumulate to batch_size) or training.loss_chunk"
            ) from error

    @property
    def last_step(self) -> int:
        """The last step: the step budget, or earlier once the model has learned retrieval."""
        config, last = self.config, self.config.total_steps
        if config.probe is None or config.cooldown_after_learning is None:
            return last
        bound = learned_at(self.history, config.probe)
        return last if bound is None else min(last, bound + config.cooldown_after_learning)

    def train_state(self) -> TrainState:
        """Return the complete training state after the current step."""
        tensors = self.tensors() | rng_tensors(self._device) | {"sums": self._sums}
        metadata = {
            "loader": self._loader.state_dict(),
            "history": list(self.history.rows),
            "summed_steps": self._summed_steps,
            "rng": rng_state(),
            "matmul_backend": self._matmul_backend,
            "threads": torch.get_num_threads(),
            "world_size": self._group.world_size,
            "parent": self.parent,
            "seconds": self.seconds,
        }
        return TrainState(self.step, tensors, metadata)

    @property
    def seconds(self) -> float:
        """Wall time of training so far in seconds.

        Earlier attempts count up to their last checkpoints.
        """
        return self.earlier_seconds + time.monotonic() - self._began

    def tensors(self) -> dict[str, Tensor]:
        """Return, by name, the tensors of model and optimizer that checkpoints contain."""
        return self._model_tensors() | self._method.optimizer.tensors()

    def restore(self, train_state: TrainState) -> None:
        """Set model, optimizer, loader and random generators to ``train_state``, to resume."""
        with torch.no_grad():
            for name, tensor in self._model_tensors().items():
                tensor.copy_(self._group.shard_tensor(train_state.tensors[name], tensor))
        optimizer = self._method.optimizer
        optimizer.load_tensors(
            {
                name: self._group.shard_tensor(train_state.tensors[name], tensor)
                for name, tensor in optimizer.tensors().items()
            }
        )
        self._loader.load_state_dict(train_state.metadata["loader"])
        self.history = History(train_state.metadata["history"])
        self._sums = train_state.tensors["sums"].to(self._device)
        self._summed_steps = train_state.metadata["summed_steps"]
        self.step = train_state.step
        self.earlier_seconds = train_state.metadata.get("seconds", 0.0)
        restore_rng(train_state.tensors, train_state.metadata["rng"], self._device)
        before, current = train_state.metadata["matmul_backend"], self._matmul_backend
        if before and current and before != current:
            logger.warning(
                f"checkpoint was made with matmul backend {before}, this process uses {current}: "
                "the last bits will differ from those of a run never stopped; "
                f"{MATMUL}={before} keeps them"
            )
        if (before := device_type_of(train_state.tensors)) != self._device.type:
            logger.warning(
                f"checkpoint was made on {before}, this process computes on {self._device.type}: "
                "the numbers will differ from those of a run never stopped"
            )
        counts = {"threads": torch.get_num_threads(), "world_size": self._group.world_size}
        for name, count in counts.items():
            if (before := train_state.metadata[name]) != count:
                logger.warning(
                    f"checkpoint was made with {name} {before}, now it is {count}: sums will "
                    "differ in their last bits from those of a run never stopped"
                )

    def _advance(
        self, store: CheckpointStore, progress: Progress, tracker: Tracker, stop: StopRequest
    ) -> None:
        config, lr = self.config, self._next_lr()
        self._optimize(lr)
        last = self.step == self.last_step
        metrics = self._validate(self._no_grad_states, self.step, last)
        if metrics or last or self.step % config.log_every == 0:
            self._add_row(lr, metrics, progress, tracker)
        if last or progress.due():
            progress.report(self.step, self.last_step, self._latest_loss(), lr)
        if self.step in config.intermediate_steps:
            self._check(lr)
            store.save_intermediate(self.step, self._group.gather_full_model(self.model))
        signal = self._group.any_rank(stop.signal)
        stopping = signal is not None and not last
        every = config.checkpoint_every
        if last or stopping or (every is not None and self.step % every == 0):
            self._check(lr)
            tracker.flush()
            store.save(self.train_state(), async_=not (last or stopping))
        else:
            store.wait(block=False)
        if stopping:
            raise Interrupted(
                f"{signal} at step {self.step}/{self.last_step}, checkpoint written; "
                "the same call continues",
                signal,
            )

    def _optimize(self, lr: float) -> None:
        self.model.train()
        batch = self._loader.next_batch().to(self._device, non_blocking=True)
        micro_batches = torch.split(batch, self.config.micro_batch)
        total = torch.zeros((), device=self._device)
        for micro_batch in micro_batches:
            with autocast(self._device, self.config.precision):
                loss = self._loss(micro_batch) / len(micro_batches)
            torch.autograd.backward(loss)
            total += loss.detach()
        norm = self._group.full_tensor(self._clip())
        self._sums += torch.stack((self._group.all_reduce_mean(total), norm))
        self._summed_steps += 1
        self.step += 1
        found_inf = None
        if self._checks_each_step:
            self._check(lr)
        else:  # the weights stay finite, and the next check raises
            found_inf = (~self._sums.isfinite().all()).float()
        self._method.step(lr, found_inf)

    def _micro_batch_loss(self, micro_batch: Tensor) -> Tensor:
        return self._objective.loss(self._hidden_states, self.model.output_weight, micro_batch)

    def _next_lr(self) -> float:
        return learning_rate(self.step + 1, self.config, self.last_step)

    def _clip(self) -> Tensor:
        """Clip the gradient; return its global norm before clipping."""
        parameters, limit = self._method.optimizer.parameters, self.config.grad_clip
        if limit is not None:
            return torch.nn.utils.clip_grad_norm_(parameters, limit)
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])

    def _add_row(
        self, lr: float, metrics: dict[str, float], progress: Progress, tracker: Tracker
    ) -> None:
        self._check(lr)
        loss, norm = (self._sums / self._summed_steps).tolist()
        limit = self.config.divergence_loss
        if limit is not None and loss > limit and self.step > self.config.warmup_steps:
            raise self._diverged(f"loss {loss:.3f} is above divergence_loss {limit}", lr)
        self._sums.zero_()
        self._summed_steps = 0
        tokens = self.step * self.config.tokens_per_step
        row = {"loss": loss, "lr": lr, "grad_norm": norm} | metrics | self._method.extra_metrics()
        self.history.append({"step": self.step, "tokens": tokens} | row)
        speed = {"tokens_per_second": progress.speed(self.step)}
        tracker.log_metrics(row | {"tokens": float(tokens)} | speed, self.step)

    def _check(self, lr: float) -> None:
        loss, norm = self._sums.tolist()
        if not (isfinite(loss) and isfinite(norm)):
            raise self._diverged(f"loss sums to {loss} and gradient norm to {norm}", lr)

    def _diverged(self, reason: str, lr: float) -> DivergenceError:
        return DivergenceError(
            f"training diverged at step {self.step}/{self.config.total_steps} (lr {lr:.2e}): "
            f"{reason}; lower training.lr or training.grad_clip, or lengthen training.warmup_steps "
            "(the last good checkpoint is kept)"
        )

    def _latest_loss(self) -> float | None:
        count = self._summed_steps
        return float(self._sums[0]) / count if count else self.history.last("loss")

    def _no_grad_states(self, tokens: Tensor) -> Tensor:
        with torch.no_grad(), autocast(self._device, self.config.precision):
            if self.config.compile:  # in the graph of a training step
                rows = self.config.micro_batch
                return measured_states(self._hidden_states, tokens.to(self._device), rows).float()
            self.model.eval()
            return self._hidden_states(tokens.to(self._device)).float()

    def _model_tensors(self) -> dict[str, Tensor]:
        """Return the tensors that training changes, without frozen parameters."""
        trained = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }
        tensors = trained | self._method.extra_tensors()
        return {f"model.{name}": tensor for name, tensor in tensors.items()}


def learning_rate(step: int, config: TrainingConfig, last: int) -> float:
    """Return the learning rate of step ``step``, counted from 1 to ``last``.

    The learning-rate schedule: linear warmup to ``lr`` at step ``warmup_steps``, then linear or
    cosine decay to ``lr * min_lr_ratio`` at the last step. ``cooldown_after_learning`` is the
    number of steps of the decay; ``lr`` stays at its peak before. A pure function without state.
    """
    assert 1 <= step <= last, f"step {step} is outside 1..{last}"
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    cooldown = config.cooldown_after_learning
    peak = max(config.warmup_steps, 1 if cooldown is None else last - cooldown)
    done = max(step - peak, 0) / (last - peak) if last > peak else 0.0
    remaining = 1.0 - done if config.decay == "linear" else 0.5 * (1.0 + cos(pi * done))
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * remaining)
