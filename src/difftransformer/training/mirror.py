"""A copy of a training's state elsewhere, so that another machine goes on where this one is lost.

    {url}/checkpoint-00000120/...                  as in the state folder, its sums.json last
    {url}/intermediate/step-00000060.safetensors{,.sha256} weights that are published
    {url}/finished                                 the training was through

The URL is one that fsspec knows: ``file:``, ``s3:`` (with the extra s3), and others whose package
is there. A thread looks for new checkpoints in the state folder and copies the newest, so training
does not wait. What cannot be written does not stop it: the line is said, and it is tried again.
Light: torch is not needed.
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

    from difftransformer.training.checkpoint import CheckpointStore, Snapshot
    from difftransformer.training.team import Team

_ASIDE = "uploading"
_SECONDS_BETWEEN_LOOKS, _SECONDS_AFTER_REFUSAL = 0.5, 30.0

logger = logging.getLogger(__name__)


class Mirror:
    """The copy of one state folder.

    Args:
        folder: The state folder.
        url: Where its copy lies; '': there is none, and nothing here does anything.
        team: The processes that train together; the one that leads copies.

    Raises:
        CheckpointError: The URL cannot be read and written.
    """

    def __init__(self, folder: Path, url: str, team: "Team") -> None:
        self._folder, self._url, self._team = folder, url.rstrip("/"), team
        self._uploaded: set[str] = set()
        self._active = bool(url) and team.is_rank0
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
        """Copy what is new while the block trains, and once more at its end.

        However long that takes: where all processes end, trained or told to stop, all wait.
        """
        if not self._url:
            yield
            return
        end = Event()
        thread = Thread(target=self._copy_until, args=(end,), name="mirror", daemon=True)
        if self._active:
            thread.start()

        def copy_the_last() -> None:
            end.set()
            thread.join()

        try:
            yield
        except Interrupted:  # of all processes, after the same step
            self._team.leading(copy_the_last)
            raise
        except BaseException:
            if self._active:
                copy_the_last()
            raise
        self._team.leading(copy_the_last)

    def finish(self) -> None:
        """Set the mark of a training whose outputs are published, where its last state is."""
        if self._active and self._newest_here() in self._uploaded:
            try:
                self._fs.pipe_file(self._path(FINISHED), b"")
            except Exception as error:
                logger.warning("%s: cannot be written (%s)", self._url, in_one_line(error))

    def newest_whole(
        self, store: "CheckpointStore", like: "Mapping[str, Tensor]"
    ) -> "Snapshot | None":
        """Return the newest whole checkpoint of the store or, where that is newer, of the copy.

        Raises:
            CheckpointError: See `CheckpointStore.newest_whole`; or the copy cannot be read.
        """
        found = store.newest_whole(like)  # first, for what is damaged here may be whole there
        here = -1 if found is None else found.step
        newer = self._team.leading(lambda: self._newer(here)) if self._url else []
        for step in self._team.from_leader(newer):
            self._team.leading(partial(self._fetch, checkpoint_name(step)))
            found = store.newest_whole(like)
            if found is not None and found.step == step:
                self._uploaded.add(checkpoint_name(step))
                break
        return found

    def clear(self) -> None:
        """Drop the copy, so that the run starts from scratch on any machine."""
        self._uploaded.clear()
        if self._active:
            with storage_errors(self._url, "cannot be cleared"), suppress(FileNotFoundError):
                self._fs.rm(self._path(), recursive=True)

    # --- there ---

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *names))

    def _names(self, *folder: str) -> set[str]:
        try:
            listed = self._fs.ls(self._path(*folder), detail=False, refresh=True)
        except FileNotFoundError:
            return set()
        return {str(path).rstrip("/").rpartition("/")[2] for path in listed}

    def _newer(self, here: int) -> list[int]:
        """Steps of the copy behind the newest whole one here, the last first."""
        with storage_errors(self._url, "cannot be read"):
            there = checkpoint_steps(self._names())
        return sorted((step for step in there if step > here), reverse=True)

    def _newest_here(self) -> str:
        steps = checkpoint_steps(path.name for path in self._folder.iterdir())
        return checkpoint_name(steps[-1]) if steps else ""

    def _fetch(self, name: str) -> None:
        """Bring a checkpoint here with the kept weights; its sums will tell whether it is whole."""
        with storage_errors(self._url, "cannot be read"):
            there = self._names(INTERMEDIATE)
            for kept in sorted(there):  # its sum comes last: without one it is half a copy
                if f"{kept}.sha256" in there and not (self._folder / INTERMEDIATE / kept).exists():
                    self._fetch_kept(kept)
            partial = self._folder / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for file in self._names(name):
                self._fs.get_file(self._path(name, file), str(partial / file))
            partial.rename(self._folder / name)
            logger.info("checkpoint %s comes from %s", name, self._url)

    def _fetch_kept(self, name: str) -> None:
        target = self._folder / INTERMEDIATE / name
        target.parent.mkdir(exist_ok=True)
        partial = target.with_name(f".{name}.partial")
        self._fs.get_file(self._path(INTERMEDIATE, name), str(partial))
        if self._fs.cat_file(self._path(INTERMEDIATE, f"{name}.sha256")).decode() != file_sha256(
            partial
        ):
            partial.unlink()
            raise CheckpointError(
                f"{self._url}/{INTERMEDIATE}/{name} does not match its sum: delete {self._url}, "
                "and the training starts again"
            )
        partial.rename(target)

    # --- copying ---

    def _copy_until(self, end: Event) -> None:
        refused = False
        while True:
            last = end.wait(_SECONDS_AFTER_REFUSAL if refused else _SECONDS_BETWEEN_LOOKS)
            try:
                self._copy()
                refused = False
            except Exception as error:
                said = in_one_line(error)
                if last or not refused:
                    logger.warning(
                        "%s: cannot be written (%s): the checkpoints on this machine are whole, "
                        "another one would go on from what is there",
                        self._url, said,
                    )  # fmt: skip
                refused = True
            if last:
                return

    def _copy(self) -> None:
        """Copy the newest checkpoint, if there is one that has no copy."""
        newest = self._newest_here()
        if newest and newest not in self._uploaded:
            self._copy_checkpoint(newest)

    def _copy_checkpoint(self, name: str) -> None:
        """Copy a checkpoint after the kept weights that it needs; of older ones keep the last.

        Newer ones are those of a machine that takes this one for lost and has gone on.
        """
        aside = self._folder / _ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        try:
            for path in (self._folder / name).iterdir():
                link(path, aside / path.name)  # training may drop it meanwhile
        except FileNotFoundError:  # it has: there is a newer one
            shutil.rmtree(aside, ignore_errors=True)
            return
        for path in sorted((self._folder / INTERMEDIATE).glob("step-*.safetensors")):
            self._copy_kept(path)
        for path in sorted(aside.iterdir(), key=lambda path: path.name == SUMS):
            self._fs.put_file(str(path), self._path(name, path.name))
        older = {one for one in map(checkpoint_name, checkpoint_steps(self._names())) if one < name}
        keep = max(older & self._uploaded, default="")
        for old in older - {keep}:
            self._fs.rm(self._path(old), recursive=True)
        self._uploaded.add(name)
        shutil.rmtree(aside, ignore_errors=True)

    def _copy_kept(self, path: Path) -> None:
        found = path.stat()
        version = f"{path.name} {found.st_ino} {found.st_mtime_ns}"  # it may be written again
        if version in self._uploaded:
            return
        copy, its_sum, own = path.name, f"{path.name}.sha256", file_sha256(path).encode()
        there, names = self._path(INTERMEDIATE, its_sum), self._names(INTERMEDIATE)
        # The process that trained before may have copied it; a sum comes after what it is of.
        known = self._fs.cat_file(there) if its_sum in names else None
        if known != own or copy not in names:
            if known is not None:
                self._fs.rm_file(there)  # no sum stands beside half a copy
            self._fs.put_file(str(path), self._path(INTERMEDIATE, copy))
            self._fs.pipe_file(there, own)
        self._uploaded.add(version)


def forget_finished(url: str, scale: str, is_stored: Callable[[str, str], bool]) -> int:
    """Remove the copies of finished trainings whose outputs are where they belong.

    Args:
        url: Of all copies.
        scale: Of which scale.
        is_stored: Says of a run and a seed whether what its training made is there.

    Returns:
        How many were removed.

    Raises:
        CheckpointError: The URL cannot be read or written.
    """
    with storage_errors(url, "cannot be cleared"):
        fs, root = open_storage(url.rstrip("/"))
        any_state = ("*",) * 4  # stage, run, seed and fingerprint
        marks = fs.glob(Layout(root, scale).copied_state(*any_state, FINISHED))
        gone = [mark for mark in marks if is_stored(*str(mark).split("/")[-4:-2])]
        for mark in gone:
            fs.rm(str(mark).rpartition("/")[0], recursive=True)
    return len(gone)
