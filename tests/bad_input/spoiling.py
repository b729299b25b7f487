"""Functions that damage a file of finished work."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from finished_work import Ended, Work, set_key
from safetensors.torch import load_file, save_file
from torch import Tensor

from difftransformer.data.packed import Manifest
from difftransformer.provenance.result import read_result, write_result

Spoil = Callable[[Work], object]
Call = Callable[[Work], Ended]
Case = tuple[Spoil, Call, list[str]]
"""What is done to finished work, the command that meets it, and parts of the line it says."""


def nothing(work: Work) -> None:
    """The call itself is wrong."""


def both(*spoils: Spoil) -> Spoil:
    def spoil(work: Work) -> None:
        for step in spoils:
            step(work)

    return spoil


def zeroed(path: Path) -> None:
    """Write zeros over up to 10 KB inside a file; its length and its times stay."""
    before = path.stat()
    count = min(10_000, before.st_size // 2)
    with path.open("r+b") as file:
        file.seek((before.st_size - count) // 2)
        file.write(bytes(count))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def republished(spoil: Spoil) -> Spoil:
    """As by a tool that changes a model and mends the digests in its training.json."""

    def mended(work: Work) -> None:
        spoil(work)
        main = work.path("run/training.json")
        beside = [path for path in main.parent.iterdir() if path.is_file() and path != main]
        write_result(main, read_result(main), beside)

    return mended


def write(name: str, content: bytes | str) -> Spoil:
    data = content if isinstance(content, bytes) else content.encode()

    def spoil(work: Work) -> None:
        work.path(name).parent.mkdir(parents=True, exist_ok=True)
        work.path(name).write_bytes(data)

    return spoil


def add(name: str, content: bytes | str) -> Spoil:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda work: work.path(name).write_bytes(work.path(name).read_bytes() + data)


def replace(name: str, old: str, new: str) -> Spoil:
    def spoil(work: Work) -> None:
        text = work.path(name).read_text()
        assert old in text, f"{old!r} is not in {name}"
        work.path(name).write_text(text.replace(old, new, 1))

    return spoil


def remove(name: str) -> Spoil:
    def spoil(work: Work) -> None:
        path = work.path(name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def cut(name: str, size: int) -> Spoil:
    return lambda work: os.truncate(work.path(name), size)


def folder(name: str) -> Spoil:
    """A folder where a file belongs."""
    return both(remove(name), lambda work: work.path(name).mkdir())


def loop(name: str) -> Spoil:
    """A link to itself."""
    return both(remove(name), lambda work: work.path(name).symlink_to(work.path(name)))


def recode(name: str, encoding: str) -> Spoil:
    return lambda work: work.path(name).write_bytes(work.path(name).read_text().encode(encoding))


def slice(name: str, key: str, value: Any) -> Spoil:
    return lambda work: work.change(name, key, value)


def manifest(key: str, value: Any) -> Spoil:
    """Change a dotted key of the manifest and sign it anew, as an attacker would."""
    return lambda work: change_manifest(work.path("data/manifest.json"), key, value)


def change_manifest(path: Path, key: str, value: Any) -> None:
    content = json.loads(path.read_text())
    set_key(content, key, value)
    with suppress(ValueError):  # what no manifest may hold has no digest
        content["digest"] = Manifest.model_validate(content).content_digest()
    path.write_text(json.dumps(content))


def sign(work: Work) -> None:
    """Make the manifest's digests those of the files as they are now."""
    path = work.path("data/manifest.json")
    content = json.loads(path.read_text())
    for split in content["splits"].values():
        for shard in split["shards"]:
            for name, digest in (("file", "sha256"), ("offsets_file", "offsets_sha256")):
                data = work.path(f"data/shards/{shard[name]}").read_bytes()
                shard[digest] = hashlib.sha256(data).hexdigest()
    content["digest"] = Manifest.model_validate(content).content_digest()
    path.write_text(json.dumps(content))


def offsets(change: Callable[[np.ndarray], np.ndarray]) -> Spoil:
    """Change the ends of documents of a held-out shard, signed."""

    def spoil(work: Work) -> None:
        path = work.path("data/shards/validation-00000.documents.npy")
        np.save(path, change(np.load(path)), allow_pickle=True)
        sign(work)

    return spoil


def weights(change: Callable[[dict[str, Tensor]], object]) -> Spoil:
    @republished
    def spoil(work: Work) -> None:
        path = work.path("run/model.safetensors")
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    return spoil


@republished
def pickled_weights(work: Work) -> None:
    """Weights as torch.save writes them, under the name of ours."""
    import torch

    torch.save({"embedding.weight": torch.zeros(2)}, work.path("run/model.safetensors"))


def anew(work: Work) -> None:
    """Drop the states, so that jobs start over."""
    shutil.rmtree(work.path("results"))


def variable(name: str, value: str) -> Spoil:
    """Set an environment variable; the test puts the environment back."""
    return lambda work: os.environ.update({name: value})
