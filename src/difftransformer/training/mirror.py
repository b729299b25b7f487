"""A remote copy of a training's checkpoints, from which another machine can resume.

    {url}/checkpoint-00000120/...                  as in the state folder, sums.json last
    {url}/intermediate/step-00000060.safetensors{,.sha256} intermediate weights
    {url}/finished                                 the training has finished

fsspec must support the URL: ``file:``, ``s3:`` (with the extra s3), and others whose package is
installed. A thread polls the state folder and copies the newest checkpoint, so training does not
wait. A failed write is logged and repeated, and does not stop training. Imports no torch.
"""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from difftransformer.errors import CheckpointError, in_one_line
from difftransformer.provenance.atomic import link
from difftransformer.provenance.checksums import file_sha256
from difftransformer.provenance.layout import INTERMEDIATE, Layout
from difftransformer.provenance.storage import open_storage, require_writable, storage_errors
from difftransformer.training.interrupt import Interrupted
from difftransformer.training.state_folder import FINISHED, SUMS, checkpoint_name, checkpoint_steps

if TYPE_CHECKING:
    from torch import Tensor

    from difftransformer.training.checkpoint import CheckpointStore, TrainState
    from difftransformer.training.process_group import ProcessGroup

_STAGING = "uploading"
_POLL_SECONDS, _RETRY_SECONDS = 0.5, 30.0

logger = logging.getLogger(__name__)


class Mirror:
    """The remote copy of a training's state folder.

    Args:
        folder: The state folder.
        url: URL of the copy; '' disables it.
        group: Process group of the training; rank 0 copies.

    Raises:
        CheckpointError: The URL cannot be read and written.
    """

    def __init__(self, folder: Path, url: str, group: "ProcessGroup") -> None:
        self._folder, self._url, self._group = folder, url.rstrip("/"), group
        self._uploaded: set[str] = set()
        self._active = bool(url) and group.is_rank0
        if not self._active:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        require_writable(self._url)
        self._fs, self._root = open_storage(self._url)
        with storage_errors(self._url, "cannot be read"):
            if self._fs.exists(self._path(FINISHED)):
                (folder / FINISHED).touch()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copy new checkpoints in a thread while the block trains, and the last one at its end.

        All processes wait for the last copy when training ends or is stopped.
        """
        if not self._url:
            yield
            return
        end = Event()
        thread = Thread(target=self._copy_until, args=(end,), name="mirror", daemon=True)
        if self._active:
            thread.start()

        def copy_last() -> None:
            end.set()
            thread.join()

        try:
            yield
        except Interrupted:  # of all processes, after the same step
            self._group.run_on_rank0(copy_last)
            raise
        except BaseException:
            if self._active:
                copy_last()
            raise
        self._group.run_on_rank0(copy_last)

    def finish(self) -> None:
        """Mark the remote copy as finished if it has the last checkpoint.

        Call it after the outputs are published.
        """
        if self._active and self._latest_local() in self._uploaded:
            try:
                self._fs.pipe_file(self._path(FINISHED), b"")
            except Exception as error:
                logger.warning("%s: cannot be written (%s)", self._url, in_one_line(error))

    def latest_valid(
        self, store: "CheckpointStore", like: "Mapping[str, Tensor]"
    ) -> "TrainState | None":
        """Return the newest valid checkpoint of the local store or, if newer, of the remote copy.

        Raises:
            CheckpointError: See `CheckpointStore.latest_valid`; or the remote copy cannot be read.
        """
        latest = store.latest_valid(like)  # first: a checkpoint damaged here may be valid there
        step = -1 if latest is None else latest.step
        newer = self._group.run_on_rank0(lambda: self._newer(step)) if self._url else []
        for step in self._group.broadcast_object(newer):
            self._group.run_on_rank0(partial(self._fetch, checkpoint_name(step)))
            latest = store.latest_valid(like)
            if latest is not None and latest.step == step:
                self._uploaded.add(checkpoint_name(step))
                break
        return latest

    def clear(self) -> None:
        """Delete the remote copy, so that the run starts from scratch on any machine."""
        self._uploaded.clear()
        if self._active:
            with storage_errors(self._url, "cannot be cleared"), suppress(FileNotFoundError):
                self._fs.rm(self._path(), recursive=True)

    # --- remote files ---

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *names))

    def _names(self, *folder: str) -> set[str]:
        try:
            paths = self._fs.ls(self._path(*folder), detail=False, refresh=True)
        except FileNotFoundError:
            return set()
        return {str(path).rstrip("/").rpartition("/")[2] for path in paths}

    def _newer(self, local_step: int) -> list[int]:
        """Return the steps of the copy after the newest local one, the last first."""
        with storage_errors(self._url, "cannot be read"):
            steps = checkpoint_steps(self._names())
        return sorted((step for step in steps if step > local_step), reverse=True)

    def _latest_local(self) -> str:
        steps = checkpoint_steps(path.name for path in self._folder.iterdir())
        return checkpoint_name(steps[-1]) if steps else ""

    def _fetch(self, name: str) -> None:
        """Download a checkpoint and the intermediate weights; the caller verifies its checksums."""
        with storage_errors(self._url, "cannot be read"):
            names = self._names(INTERMEDIATE)
            # The checksum is copied last: without it the copy is partial.
            for weights in sorted(name for name in names if f"{name}.sha256" in names):
                if not (self._folder / INTERMEDIATE / weights).exists():
                    self._fetch_weights(weights)
            partial = self._folder / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for file in self._names(name):
                self._fs.get_file(self._path(name, file), str(partial / file))
            partial.rename(self._folder / name)
            logger.info("downloaded checkpoint %s from %s", name, self._url)

    def _fetch_weights(self, name: str) -> None:
        target = self._folder / INTERMEDIATE / name
        target.parent.mkdir(exist_ok=True)
        partial = target.with_name(f".{name}.partial")
        self._fs.get_file(self._path(INTERMEDIATE, name), str(partial))
        if self._fs.cat_file(self._path(INTERMEDIATE, f"{name}.sha256")).decode() != file_sha256(
            partial
        ):
            partial.unlink()
            raise CheckpointError(
                f"{self._url}/{INTERMEDIATE}/{name} does not match its checksum: delete "
                f"{self._url}, and the training starts again"
            )
        partial.rename(target)

    # --- copying ---

    def _copy_until(self, end: Event) -> None:
        has_failed = False
        while True:
            last = end.wait(_RETRY_SECONDS if has_failed else _POLL_SECONDS)
            try:
                self._copy()
                has_failed = False
            except Exception as error:
                if last or not has_failed:
                    logger.warning(
                        "%s: cannot be written (%s): checkpoints on this machine are complete, "
                        "another machine would resume from an older copy",
                        self._url, in_one_line(error),
                    )  # fmt: skip
                has_failed = True
            if last:
                return

    def _copy(self) -> None:
        """Copy the newest checkpoint if it has no copy."""
        newest = self._latest_local()
        if newest and newest not in self._uploaded:
            self._copy_checkpoint(newest)

    def _copy_checkpoint(self, name: str) -> None:
        """Copy a checkpoint after the weights that it needs; delete older copies but the last.

        Newer copies belong to a machine that took this one for lost and resumed.
        """
        staging = self._folder / _STAGING
        shutil.rmtree(staging, ignore_errors=True)
        try:
            for path in (self._folder / name).iterdir():
                link(path, staging / path.name)  # training may delete it meanwhile
        except FileNotFoundError:  # deleted: there is a newer one
            shutil.rmtree(staging, ignore_errors=True)
            return
        for path in sorted((self._folder / INTERMEDIATE).glob("step-*.safetensors")):
            self._copy_weights(path)
        for path in sorted(staging.iterdir(), key=lambda path: path.name == SUMS):
            self._fs.put_file(str(path), self._path(name, path.name))
        copies = map(checkpoint_name, checkpoint_steps(self._names()))
        older = {copy for copy in copies if copy < name}
        for copy in older - {max(older & self._uploaded, default="")}:
            self._fs.rm(self._path(copy), recursive=True)
        self._uploaded.add(name)
        shutil.rmtree(staging, ignore_errors=True)

    def _copy_weights(self, path: Path) -> None:
        status = path.stat()
        version = f"{path.name} {status.st_ino} {status.st_mtime_ns}"  # it may be written again
        if version in self._uploaded:
            return
        digest_file, digest = f"{path.name}.sha256", file_sha256(path).encode()
        digest_path, names = self._path(INTERMEDIATE, digest_file), self._names(INTERMEDIATE)
        # An earlier process may have copied it; the digest is written after the weights.
        copied = self._fs.cat_file(digest_path) if digest_file in names else None
        if copied != digest or path.name not in names:
            if copied is not None:
                self._fs.rm_file(digest_path)  # no digest beside a partial copy
            self._fs.put_file(str(path), self._path(INTERMEDIATE, path.name))
            self._fs.pipe_file(digest_path, digest)
        self._uploaded.add(version)


def forget_finished(url: str, scale: str, is_stored: Callable[[str, str], bool]) -> int:
    """Delete the remote copies of finished trainings whose outputs are stored; return their number.

    Args:
        url: URL of the folder with all copies.
        scale: Scale of the trainings.
        is_stored: Whether the outputs of a run and seed are stored.

    Raises:
        CheckpointError: The URL cannot be read or written.
    """
    with storage_errors(url, "cannot be cleared"):
        fs, root = open_storage(url.rstrip("/"))
        wildcards = ("*",) * 4  # stage, run, seed and fingerprint
        marks = map(str, fs.glob(Layout(root, scale).copied_state(*wildcards, FINISHED)))
        removable = [mark for mark in marks if is_stored(*mark.split("/")[-4:-2])]
        for mark in removable:
            fs.rm(mark.rpartition("/")[0], recursive=True)
    return len(removable)
