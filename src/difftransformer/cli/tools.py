"""Subcommands for people: look at the plan, rerun one ablation, regenerate the documentation."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difftransformer.cli.frame import command
from difftransformer.provenance.job import reporting
from difftransformer.provenance.lock import LOCK, hold

if TYPE_CHECKING:
    from difftransformer.planning.plan import Plan

Artifact = Annotated[str, typer.Argument(help="Table, figure or ablation of artifacts.yaml.")]
Scale = Annotated[str, typer.Option(help="File of config/scales.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds.")]
Config = Annotated[Path, typer.Option("--config", help="Folder of the configuration.")]


@command
def check(scale: Scale = "tiny", config: Config = Path("config")) -> None:
    """Read and check the whole configuration at a scale; say how much there is."""
    with reporting():
        plan = _plan(config, scale)
        typer.echo(
            f"{config}: fine at scale {scale}: {len(plan.catalogue.runs)} runs, "
            f"{len(plan.catalogue.suites)} suites, artifacts {', '.join(plan.artifacts)}"
        )


@command
def show(
    run: Annotated[str, typer.Argument(help="Run of runs.yaml.")],
    scale: Scale = "tiny",
    config: Config = Path("config"),
) -> None:
    """Print a run as its training job gets it, its parameters, and how `match` sized it."""
    with reporting():
        plan = _plan(config, scale)
        slice = plan.run(run)
        from difftransformer.models.transformer import count_parameters

        typer.echo(json.dumps(slice.model_dump(mode="json"), indent=2, ensure_ascii=False))
        typer.echo(f"{count_parameters(slice.model):,} parameters", err=True)
        if (found := plan.sizes.match(run)) is not None:
            matched_to = plan.catalogue.match(run)
            assert matched_to is not None
            typer.echo(
                f"ffn_dim {found.ffn_dim}, matched to {matched_to.to} by {found.by}: "
                f"{found.size:,} for {found.wanted:,}, {found.residual:+.2%}",
                err=True,
            )


@command
def outputs(
    artifact: Artifact, scale: Scale = "tiny", seeds: Seeds = 1, config: Config = Path("config")
) -> None:
    """Print the trainings that exist for an artifact alone, for `snakemake --forcerun`."""
    with reporting():
        plan = _plan(config, scale, seeds)
        typer.echo(" ".join(plan.interventions(artifact)))


@command
def users(
    artifact: Artifact, scale: Scale = "tiny", seeds: Seeds = 1, config: Config = Path("config")
) -> None:
    """Print an artifact and the built ones that show its runs: the targets of its rerun."""
    with reporting():
        plan = _plan(config, scale, seeds)
        typer.echo(" ".join(plan.built_users(artifact)))


@command
def forget(
    artifact: Artifact, scale: Scale = "tiny", seeds: Seeds = 1, config: Config = Path("config")
) -> None:
    """Drop the checkpoints of an artifact's own trainings, so that a rerun starts from scratch.

    One that runs is not touched: its process is named.
    """
    with reporting():
        plan = _plan(config, scale, seeds)
        for file in plan.interventions(artifact):
            *_, run, seed, _ = Path(file).parts
            trainings = Path(plan.layout.home, "state", "pretrain", run, seed)
            for state in sorted({folder.parent for folder in trainings.glob("*/checkpoint-*")}):
                hold(state / LOCK, f"training {run}, seed {seed}")
                for folder in state.glob("checkpoint-*"):
                    shutil.rmtree(folder)
                    typer.echo(f"forgot {folder}")


@command
def compare_builds(
    kept: Annotated[Path, typer.Argument(help="Folder of a scale, such as results/smoke.")],
    rebuilt: Annotated[Path, typer.Argument(help="The same of a rebuild, file by file.")],
) -> None:
    """Compare the checksums of a rebuild with what there is; fail where they differ."""
    from difftransformer.provenance.comparison import compare_builds

    with reporting():
        compared = compare_builds(kept, rebuilt)
    for file in compared:
        said = "same" if file.same else "MISSING" if file.kept is None else "DIFFERENT"
        typer.echo(f"{said:9} {file.rebuilt[:16]} {file.name}")
    different = sum(not file.same for file in compared)
    typer.echo(f"{len(compared) - different} of {len(compared)} files are the same")
    if different:
        raise typer.Exit(1)


@command
def write_schema(config: Config = Path("config")) -> None:
    """Regenerate config/README.md and config/schema/*.json from the typed settings."""
    from difftransformer.planning.documentation import write_documentation

    with reporting():
        for path in write_documentation(config):
            typer.echo(path)


@command
def export_model(
    model: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    output: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[str, typer.Option(help="huggingface, llama or diffllama.")] = "huggingface",
) -> None:
    """Export a trained run for transformers, as our architecture or as an upstream one."""
    from difftransformer.models.export import export_model

    with reporting():
        export_model(model, output, format)


def _plan(config: Path, scale: str, seeds: int = 1) -> "Plan":
    from difftransformer.planning.plan import Plan

    return Plan.load(config, {"scale": scale, "seeds": seeds})
