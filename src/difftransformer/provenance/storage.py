"""Object storage by URL: opening, a write test, one-line errors.

A URL is one that fsspec supports: ``file:``, ``s3:`` (extra s3), others if their package is
installed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from difftransformer.errors import CheckpointError, in_one_line
from difftransformer.extras import install

_PROBE_BYTES = 4096
"""Size of the test file in bytes; a full storage may still accept an empty file."""
_PROBE = "writable"


def open_storage(url: str) -> tuple[Any, str]:
    """Return the fsspec file system for ``url``, and the path of ``url`` in that file system."""
    from fsspec.core import split_protocol, url_to_fs

    protocol, _ = split_protocol(url)
    local = protocol in (None, "file", "local")
    options = {"auto_mkdir": True} if local else {"use_listings_cache": False}
    fs, path = url_to_fs(url, **options)
    return fs, str(path).rstrip("/")


@contextmanager
def storage_errors(url: str, what: str) -> Iterator[None]:
    """Context manager: turn any exception of a storage library into a one-line error with advice.

    Args:
        url: The storage location.
        what: The failure in words, such as "cannot be read".

    Raises:
        CheckpointError: The block raised any exception.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # storage libraries raise exceptions of their own classes
        message = f"{url}: {what} ({in_one_line(error)})"
        if isinstance(error, ImportError):
            raise CheckpointError(f"{message}; for s3: {install('s3')}") from error
        raise CheckpointError(
            f"{message}: check the URL, permissions, free space, AWS_ENDPOINT_URL and the "
            "credentials; nothing was lost: run the same command to resume"
        ) from error


def require_writable(url: str) -> None:
    """Check that files can be written below a URL by writing and removing a file of 4 KiB.

    Raises:
        CheckpointError: Writing failed.
    """
    with storage_errors(url, "cannot be written"):
        fs, path = open_storage(url)
        fs.pipe_file(f"{path}/{_PROBE}", bytes(_PROBE_BYTES))
        fs.rm_file(f"{path}/{_PROBE}")
