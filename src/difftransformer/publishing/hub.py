"""Pushing a folder to the Hugging Face hub, or to whatever HF_ENDPOINT names."""

import os
import re
from pathlib import Path

from difftransformer.errors import UserError, in_one_line
from difftransformer.publishing.publish import CARD

TOKEN = "HF_TOKEN"


def require_token() -> str:
    """Return the token of the environment; what a login stored is not used.

    Raises:
        UserError: There is none.
    """
    if not (token := os.environ.get(TOKEN, "").strip()):
        raise UserError(f"pushing needs a token that may write: set {TOKEN} in the environment")
    return token


def require_name(repository: str) -> None:
    """Check the name of a repository.

    Raises:
        UserError: It is none of the hub's.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise UserError(f"--push-to {repository!r}: no name of a repository; OWNER/NAME is wanted")


def push(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a published folder; what is there under the same names is replaced.

    Args:
        folder: What `publish` wrote.
        repository: OWNER/NAME; made where it is missing.
        private: Whether a new repository is seen by its owner alone.

    Returns:
        The address of the commit.

    Raises:
        UserError: No token, not a published folder, or the hub refused or could not be reached.
    """
    token = require_token()
    require_name(repository)
    if not (folder / CARD).is_file():
        raise UserError(f"{folder / CARD}: no such file; publish a run into the folder first")
    from huggingface_hub import HfApi

    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = HfApi(endpoint=endpoint, token=token, library_name="difftransformer")
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Publish a run"
        )
    except Exception as error:  # the hub, its client and the network fail in many ways
        said = in_one_line(error).replace(token, "***")
        raise UserError(
            f"{repository} on {api.endpoint}: not pushed, {said}; the folder {folder} is whole, "
            "push it again"
        ) from None
    return str(done.commit_url)
