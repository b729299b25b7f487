"""Commands that export trained runs to other tools and to the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.command_group import EXPORT, command
from difftransformer.errors import UserError
from difftransformer.provenance.command_errors import report_errors


@command(
    *("publish", EXPORT, "results/tiny/runs/diff/6 my-model"),
    "results/tiny/runs/diff/6 my-model --push-to OWNER/NAME --license mit",
)
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
            help="License of the weights: mit, or that of the base model.", show_default="mit"
        ),
    ] = None,
    push_to: Annotated[
        str,
        typer.Option(
            help="Repository OWNER/NAME on the hub; needs HF_TOKEN. HF_ENDPOINT: another hub."
        ),
    ] = "",
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public.")] = False,
) -> None:
    """Write a run and a model card as a folder for the Hugging Face hub; --push-to uploads it."""
    with report_errors():
        from difftransformer.publishing import hub
        from difftransformer.publishing.publish import is_published, publish

        if public and not push_to:
            raise UserError("--public needs a repository: give --push-to OWNER/NAME")
        if push_to:  # check before writing anything
            hub.require_token()
            hub.require_name(push_to)
        # The upload of an earlier call may have failed: then the folder is complete already.
        if not (push_to and is_published(run, output, format, license)):
            publish(run, output, format, license)
        address = hub.push(output, push_to, private=not public) if push_to else str(output)
        typer.echo(address)


@command(
    *("export", EXPORT, "results/tiny/runs/diff/6 my-model"),
    "results/tiny/runs/transformer/6 my-model --format gguf",
)
def export_model(
    model: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    output: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[
        str, typer.Option(help="huggingface, llama, diffllama, gguf or peft.")
    ] = "huggingface",
) -> None:
    """Export a trained run for transformers, lm_eval, llama.cpp or peft."""
    from difftransformer.convert.export import export_model

    with report_errors():
        export_model(model, output, format)
        typer.echo(output)
