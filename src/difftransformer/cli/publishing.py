"""Subcommand that makes a trained run ready for the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import EXPORT, command
from difftransformer.errors import UserError
from difftransformer.provenance.reporting import reporting


@command(EXPORT)
def publish(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a trained run, results/<scale>/runs/<run>/<seed>, or of a model of "
            "difftransformer that transformers saved."
        ),
    ],
    output: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[str, typer.Option(help="huggingface, llama or diffllama.")] = "huggingface",
    license: Annotated[
        str | None,
        typer.Option(
            help="License of the weights, for the card: mit, or your base's.", show_default="mit"
        ),
    ] = None,
    push_to: Annotated[
        str, typer.Option(help="OWNER/NAME on the hub; HF_TOKEN and HF_ENDPOINT say who and where.")
    ] = "",
    public: Annotated[bool, typer.Option("--public", help="Let everybody see a new one.")] = False,
) -> None:
    """Write a run as a folder for the Hugging Face hub, with a model card; push it if told to."""
    with reporting():
        from difftransformer.publishing import hub
        from difftransformer.publishing.publish import is_published, publish

        if public and not push_to:
            raise UserError("--public is about the hub: give --push-to OWNER/NAME, too")
        if push_to:  # before anything is written
            hub.require_token()
            hub.require_name(push_to)
        # A push that failed is done again.
        if not (push_to and is_published(run, output, format, license)):
            publish(run, output, format, license)
        place = hub.push(output, push_to, private=not public) if push_to else str(output)
        typer.echo(place)
