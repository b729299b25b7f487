"""Checkpoints of the training state, written atomically and verified by checksums.

    state/checkpoint-00000120/tensors.safetensors   weights, optimizer, generators, running sums
                              state.json            step, loader position, history, settings digest
                              sums.json             sha256 of the two, written last
    state/intermediate/step-00000060.safetensors    published weights, see `save_checkpoints_at`

Several processes each write a `shard-*.safetensors` instead of the one file; any number of
processes can read them. A checkpoint is written in ``checkpoint-*.partial``, synced and renamed, so
a kill at any moment leaves the previous one. Nothing is pickled.
"""

import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from difftransformer.convert.checkpoint import save_weights
from difftransformer.errors import CheckpointError
from difftransformer.models.language_model import LanguageModel
from difftransformer.provenance.atomic import sync
from difftransformer.provenance.checksums import file_sha256
from difftransformer.provenance.environment import versions
from difftransformer.provenance.layout import INTERMEDIATE
from difftransformer.training.distributed import read_shards
from difftransformer.training.process_group import ProcessGroup
from difftransformer.training.state_folder import (
    CHECKPOINT,
    SUMS,
    checkpoint_name,
    checkpoint_steps,
    intermediate_name,
)

logger = logging.getLogger(__name__)

_TENSORS, _STATE = "tensors.safetensors", "state.json"
_PARTIAL, _DAMAGED = ".partial", ".damaged"
_VERSIONS = "versions"
_DAMAGE = (ValueError, KeyError, TypeError, FileNotFoundError, NotADirectoryError, SafetensorError)


@dataclass(frozen=True)
class TrainState:
    """The state of a training run, from which it resumes with bit-identical results."""

    step: int
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]

    def to_cpu(self) -> "TrainState":
        """Return a copy of the state in CPU memory, which further training does not change."""
        tensors = {
            name: tensor.detach().to("cpu", copy=True) for name, tensor in self.tensors.items()
        }
        return TrainState(self.step, tensors, self.metadata)


class CheckpointStore:
    """The checkpoints of one run in its state folder; the caller must hold the folder's lock.

    Args:
        folder: The state folder.
        keep: Number of complete checkpoints to keep.
        identity: Fingerprint of the run (settings, data, seed, code); checkpoints of another run
            are refused.
        group: Process group of the training; all of its processes must call each method.
    """

    def __init__(
        self, folder: Path, *, keep: int, identity: str, group: ProcessGroup | None = None
    ) -> None:
        self._folder, self._keep, self._identity = folder, keep, identity
        self._group = (group or ProcessGroup()).new_group()
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._group.run_on_rank0(self._remove_partial)

    def _remove_partial(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob(f"{CHECKPOINT}*{_PARTIAL}"):
            shutil.rmtree(leftover)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the checkpoint that is being written, before the caller releases the lock."""
        try:
            self.wait()
        except Exception as write_error:
            if error is None:
                raise
            logger.warning("%s", write_error)
        finally:
            self._thread.shutdown()

    def save(self, train_state: TrainState, *, async_: bool = False) -> None:
        """Write a checkpoint, then delete all but the newest ``keep`` ones.

        Args:
            train_state: The state to write.
            async_: Write a copy from a thread while training continues. At most one is in
                progress; the next call, or `wait`, raises its error.

        Raises:
            CheckpointError: The file system refused (full, read-only); earlier checkpoints stay.
        """
        self.wait()
        if async_:
            self._writing = self._thread.submit(self._save, train_state.to_cpu())
        else:
            self._save(train_state)

    def wait(self, *, block: bool = True) -> None:
        """Wait for the checkpoint being written; raise its error. ``block=False``: only raise."""
        if self._writing is not None and (block or self._writing.done()):
            future, self._writing = self._writing, None
            future.result()

    def _save(self, train_state: TrainState) -> None:
        partial = self._folder / f"{checkpoint_name(train_state.step)}{_PARTIAL}"
        try:
            self._write(partial, train_state)
        except (OSError, SafetensorError) as error:
            if self._group.is_rank0:
                shutil.rmtree(partial, ignore_errors=True)
            steps = self._steps()
            latest = f"the latest complete one is of step {steps[-1]}" if steps else "there is none"
            raise CheckpointError(
                f"checkpoint of step {train_state.step} could not be written to {self._folder} "
                f"({_reason(error)}); {latest}: make room there and start again to continue"
            ) from error
        if not self._group.is_rank0:
            return
        self._drop(self._steps()[: -self._keep])
        for name in self.damaged():
            shutil.rmtree(self._folder / f"{name}{_DAMAGED}")

    def clear(self) -> None:
        """Delete all checkpoints and intermediate weights, so that the run starts from scratch."""
        if self._group.is_rank0:
            self._drop(self._steps())
            shutil.rmtree(self._folder / INTERMEDIATE, ignore_errors=True)

    def damaged(self) -> list[str]:
        """Return the names of the damaged checkpoints, which `latest_valid` renamed."""
        return sorted(path.stem for path in self._folder.glob(f"{CHECKPOINT}*{_DAMAGED}"))

    def save_intermediate(self, step: int, model: LanguageModel) -> None:
        """Write the weights after a step, to be published with the final weights.

        A run that resumes from an earlier step writes the same bytes again.

        Raises:
            CheckpointError: The file system refused this or the previous checkpoint.
        """
        path = self.intermediate_checkpoint(step)
        self.wait()  # collectives for one file at a time
        try:
            self._group.run_on_rank0(lambda: save_weights(path, model.state_dict()))
        except OSError as error:
            raise CheckpointError(
                f"weights of step {step} could not be written to {path} ({_reason(error)}): make "
                "room there and start again to continue"
            ) from error

    def intermediate_checkpoint(self, step: int) -> Path:
        """Return the path of the file with the weights after a step."""
        return self._folder / INTERMEDIATE / intermediate_name(step)

    def latest_valid(self, like: Mapping[str, Tensor] | None = None) -> TrainState | None:
        """Return the newest checkpoint whose checksums match and that has all tensors of ``like``.

        The result is None if no checkpoint is valid. Each process reads its shards of the tensors
        that are sharded in ``like``. Damaged checkpoints are reported and renamed.

        Raises:
            CheckpointError: The checkpoint belongs to another run, was written by library
                versions whose files cannot be read here, or the file system refused.
        """
        like = like or {}
        # Rank 0 searches, since it renames damaged checkpoints; all read the one it finds.
        train_state = self._group.run_on_rank0(lambda: self._latest_valid(like))
        step = self._group.broadcast_object(None if train_state is None else train_state.step)
        if step is None:
            return None
        folder = self._folder / checkpoint_name(step)
        return self._group.run_on_all_or_raise(
            lambda: train_state or _read_valid(folder, step, like, self._group)
        )

    def _latest_valid(self, like: Mapping[str, Tensor]) -> TrainState | None:
        for step in reversed(self._steps()):
            folder = self._folder / checkpoint_name(step)
            try:
                _require_sums(folder)
            except _DAMAGE as error:
                logger.warning("checkpoint %s is damaged (%s): skipped", folder, _reason(error))
                aside = folder.with_name(folder.name + _DAMAGED)
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
                continue
            except OSError as error:
                raise _unreadable(folder, error) from error
            train_state = _read_valid(folder, step, like, self._group)
            if train_state.metadata["identity"] != self._identity:
                raise CheckpointError(
                    f"{folder} was written by a run with other settings, data, seed or code: "
                    "give another state folder, or delete this one"
                )
            if (writer := train_state.metadata.get(_VERSIONS, _versions())) != _versions():
                logger.warning(
                    "checkpoint %s was written by %s and resumes with %s: bits may differ",
                    folder, _format(writer), _format(_versions()),
                )  # fmt: skip
            return train_state
        return None

    def _write(self, partial: Path, train_state: TrainState) -> None:
        self._group.run_on_rank0(lambda: _make_empty(partial))
        tensors = {
            name: tensor.detach().contiguous() for name, tensor in train_state.tensors.items()
        }
        if self._group.world_size == 1:
            save_file(tensors, partial / _TENSORS)
            sums = _synced_sums(partial, [_TENSORS])
        else:
            names = self._group.save_shards(tensors, partial)
            parts = self._group.all_gather_object(
                self._group.run_on_all_or_raise(lambda: _synced_sums(partial, names))
            )
            sums = {name: digest for part in parts for name, digest in part.items()}
        self._group.run_on_rank0(lambda: self._seal(partial, train_state, sums))

    def _seal(self, partial: Path, train_state: TrainState, sums: dict[str, str]) -> None:
        """Write state and checksums of a checkpoint, and rename it to its final name."""
        metadata = {"step": train_state.step, "identity": self._identity, _VERSIONS: _versions()}
        state = train_state.metadata | metadata
        (partial / _STATE).write_text(json.dumps(state), encoding="utf-8")
        sums = sums | _synced_sums(partial, [_STATE])
        (partial / SUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
        sync(partial / SUMS)
        sync(partial)
        partial.rename(partial.with_name(partial.name.removesuffix(_PARTIAL)))
        sync(self._folder)

    def _steps(self) -> list[int]:
        return checkpoint_steps(path.name for path in self._folder.glob(f"{CHECKPOINT}*"))

    def _drop(self, steps: Iterable[int]) -> None:
        for step in steps:
            old = self._folder / checkpoint_name(step)
            # If it is killed half-way, the rest must not look like a checkpoint.
            shutil.rmtree(old.rename(old.with_name(old.name + _PARTIAL)))


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _synced_sums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Sync files to disk; return their checksums."""
    for name in names:
        sync(folder / name)
    return {name: file_sha256(folder / name) for name in names}


def _require_sums(folder: Path) -> None:
    sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
    for name in {_STATE, *sums}:
        if file_sha256(folder / name) != sums[name]:
            raise ValueError(f"{name} does not match its checksum")


def _read_valid(
    folder: Path, step: int, like: Mapping[str, Tensor], group: ProcessGroup
) -> TrainState:
    """Read a checkpoint whose checksums match.

    Raises:
        CheckpointError: The disk refuses, or these versions of libraries cannot read it.
    """
    try:
        train_state = _read(folder, step, like, group)
        if missing := sorted(set(like) - train_state.tensors.keys()):
            raise ValueError(f"lacks {len(missing)} tensors, the first is {missing[0]}")
    except OSError as error:
        raise _unreadable(folder, error) from error
    except _DAMAGE as error:  # other versions of libraries give weights other names
        writer = json.loads((folder / _STATE).read_text(encoding="utf-8")).get(_VERSIONS, {})
        raise CheckpointError(
            f"checkpoint {folder} is intact but cannot be read here ({_reason(error)}): install "
            f"the versions that wrote it ({_format(writer) or 'another torch'}), or delete it and "
            "its copies"
        ) from error
    return train_state


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that compute and name the tensors."""
    return {name: versions()[name] for name in ("torch", "transformers", "peft")}


def _format(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _read(folder: Path, step: int, like: Mapping[str, Tensor], group: ProcessGroup) -> TrainState:
    metadata = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    if metadata["step"] != step:
        raise ValueError(f"{_STATE} is of step {metadata['step']}")
    if not (folder / _TENSORS).exists():
        return TrainState(step, read_shards(folder, like), metadata)
    # Cloned: tensors mapped from the file are not aligned like allocated ones.
    tensors = {
        name: group.shard_tensor(tensor.clone(), like.get(name, tensor))
        for name, tensor in load_file(folder / _TENSORS).items()
    }
    return TrainState(step, tensors, metadata)


def _unreadable(folder: Path, error: OSError) -> CheckpointError:
    """Return the error for a failing disk or missing permissions; the checkpoint is not renamed."""
    return CheckpointError(
        f"checkpoint {folder} cannot be read ({_reason(error)}): nothing was changed; fix that "
        "and start again to continue"
    )


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
