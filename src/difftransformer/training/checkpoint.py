"""Checkpoints of the training state: whole or not there, checked by their sums, newest first.

    state/checkpoint-00000120/tensors.safetensors   weights, optimizer, generators, running sums
                              state.json            step, loader position, history, settings digest
                              sums.json             sha256 of the two: what makes it whole
    state/intermediate/step-00000060.safetensors
                              weights that are published, see `save_checkpoints_at`

Several processes write `shard-*.safetensors` in place of the one file, each its own, and any number
of them reads these.

A checkpoint is written in ``checkpoint-*.partial``, synced and renamed, so a kill at any moment
leaves the one before. Nothing is pickled.
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
from difftransformer.training.state_folder import (
    CHECKPOINT,
    SUMS,
    checkpoint_name,
    checkpoint_steps,
    intermediate_name,
)
from difftransformer.training.team import Team

logger = logging.getLogger(__name__)

_TENSORS, _STATE = "tensors.safetensors", "state.json"
_PARTIAL, _DAMAGED = ".partial", ".damaged"
_VERSIONS = "versions"
_DAMAGE = (ValueError, KeyError, TypeError, FileNotFoundError, NotADirectoryError, SafetensorError)


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to go on to the same bits."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]

    def copied(self) -> "Snapshot":
        """Return one that stays as it is while training goes on, in the memory of the CPU."""
        tensors = {
            name: tensor.detach().to("cpu", copy=True) for name, tensor in self.tensors.items()
        }
        return Snapshot(self.step, tensors, self.state)


class CheckpointStore:
    """The checkpoints in one state folder; the caller holds the lock beside it.

    Args:
        folder: The state folder.
        keep: How many of the newest whole checkpoints stay.
        identity: Digest of what the run is (settings, data, seed, code): a checkpoint of another
            run is refused rather than continued.
        team: The processes that train together: all of them call each method.
    """

    def __init__(self, folder: Path, *, keep: int, identity: str, team: Team | None = None) -> None:
        self._folder, self._keep, self._identity = folder, keep, identity
        self._team = (team or Team()).apart()
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._team.leading(self._tidy)

    def _tidy(self) -> None:
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
        """Wait for what is being written: the caller gives up the lock."""
        try:
            self.settle()
        except Exception as lost:
            if error is None:
                raise
            logger.warning("%s", lost)
        finally:
            self._thread.shutdown()

    def save(self, snapshot: Snapshot, *, behind: bool = False) -> None:
        """Write ``snapshot`` and drop all but the newest checkpoints.

        Args:
            snapshot: What to write.
            behind: Write a copy from a thread, while training goes on. At most one is under way;
                the next call, or `settle`, raises what went wrong with it.

        Raises:
            CheckpointError: the file system refused (full, read-only); the checkpoints before it
                are kept.
        """
        self.settle()
        if behind:
            self._writing = self._thread.submit(self._save, snapshot.copied())
        else:
            self._save(snapshot)

    def settle(self, *, wait: bool = True) -> None:
        """Wait for the checkpoint that is being written, if any, or look whether it is done.

        Raises:
            CheckpointError: it could not be written, see `save`.
        """
        if self._writing is not None and (wait or self._writing.done()):
            written, self._writing = self._writing, None
            written.result()

    def _save(self, snapshot: Snapshot) -> None:
        partial = self._folder / f"{checkpoint_name(snapshot.step)}{_PARTIAL}"
        try:
            self._write(partial, snapshot)
        except (OSError, SafetensorError) as error:
            if self._team.is_rank0:
                shutil.rmtree(partial, ignore_errors=True)
            whole = self._steps()
            kept = f"the one of step {whole[-1]} is kept" if whole else "there is none before it"
            raise CheckpointError(
                f"checkpoint of step {snapshot.step} could not be written to {self._folder} "
                f"({_reason(error)}); {kept}: make room there and start again to continue"
            ) from error
        if not self._team.is_rank0:
            return
        self._drop(self._steps()[: -self._keep])
        for name in self.damaged():
            shutil.rmtree(self._folder / f"{name}{_DAMAGED}")

    def clear(self) -> None:
        """Drop all checkpoints and kept weights, so that the run starts from scratch."""
        if self._team.is_rank0:
            self._drop(self._steps())
            shutil.rmtree(self._folder / INTERMEDIATE, ignore_errors=True)

    def damaged(self) -> list[str]:
        """Names of the damaged checkpoints that were set aside."""
        return sorted(path.stem for path in self._folder.glob(f"{CHECKPOINT}*{_DAMAGED}"))

    def save_intermediate(self, step: int, model: LanguageModel) -> None:
        """Write the weights after a step, to be published with the final ones.

        A run resumed from before the step writes the same bytes again.

        Raises:
            CheckpointError: the file system refused, now or to the checkpoint before.
        """
        path = self.intermediate_checkpoint(step)
        self.settle()  # the processes talk about one file at a time
        try:
            self._team.leading(lambda: save_weights(path, model.state_dict()))
        except OSError as error:
            raise CheckpointError(
                f"weights of step {step} could not be written to {path} ({_reason(error)}): make "
                "room there and start again to continue"
            ) from error

    def intermediate_checkpoint(self, step: int) -> Path:
        """File of the weights after a step."""
        return self._folder / INTERMEDIATE / intermediate_name(step)

    def newest_whole(self, like: Mapping[str, Tensor] | None = None) -> Snapshot | None:
        """Return the newest checkpoint whose sums hold and that has all tensors of ``like``.

        Of those that the processes share there each reads its part. Damaged checkpoints are
        reported and set aside.

        Raises:
            CheckpointError: the checkpoint is whole but of another run, or by libraries that these
                cannot read, or the disk does not let it be read.
        """
        like = like or {}
        # One process looks, for it renames what is damaged, however long that takes; all read what
        # it found.
        found = self._team.leading(lambda: self._newest_whole(like))
        step = self._team.from_leader(None if found is None else found.step)
        if step is None:
            return None
        folder = self._folder / checkpoint_name(step)
        return self._team.together(
            lambda: _read_whole(folder, step, like, self._team) if found is None else found
        )

    def _newest_whole(self, like: Mapping[str, Tensor]) -> Snapshot | None:
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
            snapshot = _read_whole(folder, step, like, self._team)
            if snapshot.state["identity"] != self._identity:
                raise CheckpointError(
                    f"{folder} was written by a run with other settings, data, seed or code: "
                    "give another state folder, or delete this one"
                )
            if (wrote := snapshot.state.get(_VERSIONS, _versions())) != _versions():
                logger.warning(
                    "checkpoint %s was written by %s and goes on by %s: other bits, perhaps",
                    folder, _named(wrote), _named(_versions()),
                )  # fmt: skip
            return snapshot
        return None

    def _write(self, partial: Path, snapshot: Snapshot) -> None:
        self._team.leading(lambda: _make_empty(partial))
        tensors = {name: tensor.detach().contiguous() for name, tensor in snapshot.tensors.items()}
        if self._team.world_size == 1:
            save_file(tensors, partial / _TENSORS)
            sums = _synced_sums(partial, [_TENSORS])
        else:
            mine = self._team.write(tensors, partial)
            parts = self._team.all_of(self._team.together(lambda: _synced_sums(partial, mine)))
            sums = {name: digest for some in parts for name, digest in some.items()}
        self._team.leading(lambda: self._seal(partial, snapshot, sums))

    def _seal(self, partial: Path, snapshot: Snapshot, sums: dict[str, str]) -> None:
        """Write what makes a checkpoint whole, and give it its name."""
        own = {"step": snapshot.step, "identity": self._identity, _VERSIONS: _versions()}
        state = snapshot.state | own
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
            # Killed half-way, it must not look like a checkpoint.
            shutil.rmtree(old.rename(old.with_name(old.name + _PARTIAL)))


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _synced_sums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Put files on the disk; return their sums."""
    for name in names:
        sync(folder / name)
    return {name: file_sha256(folder / name) for name in names}


def _require_sums(folder: Path) -> None:
    sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
    for name in {_STATE, *sums}:
        if file_sha256(folder / name) != sums[name]:
            raise ValueError(f"{name} does not match its sum")


def _read_whole(folder: Path, step: int, like: Mapping[str, Tensor], team: Team) -> Snapshot:
    """Read a checkpoint whose sums hold.

    Raises:
        CheckpointError: The disk does not let it be read, or these libraries cannot.
    """
    try:
        snapshot = _read(folder, step, like, team)
        if missing := sorted(set(like) - snapshot.tensors.keys()):
            raise ValueError(f"lacks {len(missing)} tensors, the first is {missing[0]}")
    except OSError as error:
        raise _unreadable(folder, error) from error
    except _DAMAGE as error:  # other versions of libraries give weights other names
        wrote = json.loads((folder / _STATE).read_text(encoding="utf-8")).get(_VERSIONS, {})
        raise CheckpointError(
            f"checkpoint {folder} is whole, and cannot be read here ({_reason(error)}): install "
            f"what wrote it ({_named(wrote) or 'another torch'}), or delete it and its copies"
        ) from error
    return snapshot


def _versions() -> dict[str, str]:
    """Of the libraries that name and compute what a checkpoint holds."""
    return {name: versions()[name] for name in ("torch", "transformers", "peft")}


def _named(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _read(folder: Path, step: int, like: Mapping[str, Tensor], team: Team) -> Snapshot:
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    if state["step"] != step:
        raise ValueError(f"{_STATE} is of step {state['step']}")
    if not (folder / _TENSORS).exists():
        return Snapshot(step, read_shards(folder, like), state)
    # Cloned: tensors mapped from the file are not aligned like allocated ones.
    tensors = {
        name: team.share(tensor.clone(), like.get(name, tensor))
        for name, tensor in load_file(folder / _TENSORS).items()
    }
    return Snapshot(step, tensors, state)


def _unreadable(folder: Path, error: OSError) -> CheckpointError:
    """What to say of the disk or its rights, which says nothing of the content."""
    return CheckpointError(
        f"checkpoint {folder} cannot be read ({_reason(error)}): nothing was changed; mend that "
        "and start again to continue"
    )


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
