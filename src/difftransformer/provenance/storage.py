"""Places that a URL names, such as a bucket: opened, probed, and what they refuse in one line.

A URL is one that fsspec knows: ``file:``, ``s3:`` (with the extra s3), and others whose package is
there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from difftransformer.errors import CheckpointError, in_one_line
from difftransformer.extras import install

_PROBED = 4096
"""Bytes of a probe: some that are full still take an empty file."""
_PROBE = "writable"


def open_storage(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    from fsspec.core import split_protocol, url_to_fs

    protocol, _ = split_protocol(url)
    local = protocol in (None, "file", "local")
    options = {"auto_mkdir": True} if local else {"use_listings_cache": False}
    fs, path = url_to_fs(url, **options)
    return fs, str(path).rstrip("/")


@contextmanager
def storage_errors(url: str, what: str) -> Iterator[None]:
    """Say in one line what a library says of a place, and what to look at.

    Raises:
        CheckpointError: Instead of any other exception; ``what`` could not be done.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # a storage library has its own
        said = f"{url}: {what} ({in_one_line(error)})"
        if isinstance(error, ImportError):
            raise CheckpointError(f"{said}; for s3: {install('s3')}") from error
        raise CheckpointError(
            f"{said}: look at its name, its rights and room, AWS_ENDPOINT_URL and the "
            "credentials; nothing was lost, start again to continue"
        ) from error


def require_writable(url: str) -> None:
    """Write a small file below a URL, and remove it; of room for much more it says nothing.

    Raises:
        CheckpointError: It cannot be done; the line says why and what to look at.
    """
    with storage_errors(url, "cannot be written"):
        fs, path = open_storage(url)
        fs.pipe_file(f"{path}/{_PROBE}", bytes(_PROBED))
        fs.rm_file(f"{path}/{_PROBE}")
