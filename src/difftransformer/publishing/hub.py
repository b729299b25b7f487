"""Upload a folder to the Hugging Face hub, or to the hub at HF_ENDPOINT."""

import os
import re
from pathlib import Path

from difftransformer.errors import UserError, in_one_line
from difftransformer.publishing.publish import CARD

TOKEN = "HF_TOKEN"


def require_token() -> str:
    """Return the access token in the variable HF_TOKEN; a stored login is not used.

    Raises:
        UserError: The variable is not set.
    """
    if not (token := os.environ.get(TOKEN, "").strip()):
        raise UserError(f"pushing needs a token with write access: set {TOKEN} in the environment")
    return token


def require_name(repository: str) -> None:
    """Check that the name of a repository has the form OWNER/NAME.

    Raises:
        UserError: The name has another form.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise UserError(f"--push-to {repository!r}: not a repository name; give OWNER/NAME")


def push(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder written by `publish` to the hub, replacing files with the same names.

    Args:
        folder: The folder.
        repository: Repository OWNER/NAME; created if missing.
        private: Whether a new repository is private.

    Returns:
        The address of the commit on the hub.

    Raises:
        UserError: There is no token, the folder was not published, or the upload failed.
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
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Publish a run"
        )
    except Exception as error:  # the hub, its client and the network fail in many ways
        reason = in_one_line(error).replace(token, "***")
        raise UserError(
            f"{repository} on {api.endpoint}: not pushed, {reason}; the folder {folder} is "
            "complete: push it again"
        ) from None
    return str(commit.commit_url)
