"""Commands that inspect the plan, export a model, compare builds and send the tracking."""

import json
import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.frame import (
    EXPORT,
    INSPECT,
    MAINTAIN,
    Artifact,
    Config,
    FoundResults,
    FoundUri,
    Scale,
    Seeds,
    command,
    find_results,
    load_plan,
)
from difftransformer.config.inheritance import flat
from difftransformer.config.yaml_files import as_settings, parse_value
from difftransformer.errors import UserError
from difftransformer.provenance.reporting import reporting


@command(INSPECT)
def check(scale: Scale = None, config: Config = Path("config")) -> None:
    """Check the whole configuration at a scale and print how much it has."""
    with reporting():
        plan = load_plan(config, scale)
        typer.echo(
            f"{config}: fine at scale {plan.catalogue.project.scale}: "
            f"{len(plan.catalogue.runs)} runs, {len(plan.catalogue.suites)} suites, artifacts "
            f"{', '.join(plan.artifacts.known)}"
        )


@command(INSPECT, name="list")
def list_known(
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead.")] = False,
    scale: Scale = None,
    config: Config = Path("config"),
) -> None:
    """List the tables and figures of a scale with the seeds that are built, or its runs."""
    with reporting():
        plan = load_plan(config, scale)
        if runs:
            lines = {name: (model.label, "") for name, model in plan.catalogue.runs.items()}
        else:
            from difftransformer.planning.built import built, seeds_of

            artifacts, states = plan.artifacts.known, dict.fromkeys(built(plan), "built")
            for name, seeds in seeds_of(plan, states).items():
                states[name] = f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"
            lines = {name: (item.title, states.get(name, "-")) for name, item in artifacts.items()}
        widths = [max(map(len, lines)), max(len(state) for _, state in lines.values())]
        for name, (title, state) in lines.items():
            typer.echo(f"{name:{widths[0]}}  {state:{widths[1]}}  {title}")


@command(INSPECT)
def show(
    run: Annotated[str, typer.Argument(help="Run of runs.yaml.")],
    origins: Annotated[
        bool, typer.Option("--origins", help="The file and key that sets each value.")
    ] = False,
    scale: Scale = None,
    config: Config = Path("config"),
) -> None:
    """Print a run as its training job gets it, its parameters, those of its attention against
    plain attention, and how `match` sized it.
    """
    with reporting():
        plan = load_plan(config, scale)
        slice = plan.jobs.run(run)
        if origins:
            places = plan.catalogue.layers(run).origins()
            for key, value in flat(slice.model_dump(mode="json", include={"model", "training"})):
                place = places.get(key, "default, or follows from other settings")
                typer.echo(f"{key} = {value}  # {place}")
            return
        from difftransformer.models.sizes import attention_size, count_parameters

        typer.echo(json.dumps(slice.model_dump(mode="json"), indent=2, ensure_ascii=False))
        typer.echo(f"{count_parameters(slice.model):,} parameters", err=True)
        own, plain, queries, keys = attention_size(slice.model)
        text = f"{own:,} parameters in the attention of each layer"
        if plain is not None:
            text += (
                f", {own / plain - 1:+.1%} against the {plain:,} of plain attention with as many "
                f"query heads ({queries}) and key heads ({keys})"
            )
        typer.echo(text, err=True)
        if (match := plan.jobs.sizes.match(run)) is not None:
            matched_to = plan.catalogue.entry(run).match
            assert matched_to is not None
            typer.echo(
                f"ffn_dim {match.ffn_dim}, matched to {matched_to.to} by {match.by}: "
                f"{match.size:,} for {match.wanted:,}, {match.residual:+.2%}",
                err=True,
            )


@command(INSPECT)
def show_costs(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Artifacts or groups; default: `default_targets`.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Name of a file in config/scales; default: `paper`.")
    ] = None,
    seeds: Seeds = None,
    pretrained: Annotated[
        str | None, typer.Option(help="Pretrained model to adapt, as `pretrained` of config.yaml.")
    ] = None,
    as_planned: Annotated[
        bool,
        typer.Option(
            hidden=True,
            help="For `make plan`: the scale is that of config.yaml, and a scale without a "
            "machine has no output.",
        ),
    ] = False,
    config: Config = Path("config"),
) -> None:
    """Estimate what the trainings behind artifacts cost: GPU-hours, days, disk; runs nothing."""
    from difftransformer.errors import lookup
    from difftransformer.planning.costs import lines

    with reporting():
        model = None if pretrained is None else parse_value(pretrained, "--pretrained")
        scale = scale or (None if as_planned else "paper")
        plan = load_plan(config, scale, seeds=seeds, pretrained=model)
        if as_planned and plan.catalogue.scale.machine is None:
            return
        names = {**plan.groups, **plan.artifacts.known}
        for target in targets or []:
            if target in plan.catalogue.artifacts:
                plan.require(target, "show_costs")
            lookup(names, target, "artifact or group", "show_costs")
        artifacts = plan.asked(targets or [])
        plan.require_room(plan.trainings(artifacts))
        for line in lines(plan, artifacts):
            typer.echo(line)


@command(INSPECT)
def estimate_judging(
    artifact: Artifact, scale: Scale = None, seeds: Seeds = None, config: Config = Path("config")
) -> None:
    """Estimate what the endpoint would cost for the existing answers; sends nothing."""
    with reporting():
        from difftransformer.config.evaluations import module_of

        # The setting `judge` does not matter here, and an endpoint would need its key.
        plan = load_plan(config, scale, seeds=seeds, judge="lexical")
        kept, missing = Path(plan.jobs.layout.kept_judgments), 0
        plan.require(artifact, "estimate_judging")
        folders_by_kind = plan.artifacts.answer_folders(artifact)
        if not folders_by_kind:
            judged = filter(plan.artifacts.answer_folders, plan.artifacts.known)
            raise UserError(f"{artifact}: has nothing to judge; what has is {', '.join(judged)}")
        for kind, answers in folders_by_kind.items():
            judge, folders = import_module(module_of(kind, "judge")), [*map(Path, answers)]
            present, estimate = judge.estimate(
                plan.catalogue.project.judges.endpoint, folders, kept
            )
            typer.echo(estimate)
            missing += len(folders) - present
        if missing:
            words = shlex.join(as_settings({"scale": plan.catalogue.project.scale, "seeds": seeds}))
            typer.echo(
                f"{missing} runs have not answered yet: "
                f"`snakemake {artifact} --config {words}` makes them answer"
            )


@command(MAINTAIN)
def compare_builds(
    kept: Annotated[Path, typer.Argument(help="Folder of a scale, such as results/smoke.")],
    rebuilt: Annotated[Path, typer.Argument(help="The same folder of a rebuild.")],
) -> None:
    """Compare the checksums of two builds; exit with status 1 if a file differs."""
    from difftransformer.provenance.published import compare_builds

    with reporting():
        compared = compare_builds(kept, rebuilt)
    for file in compared:
        state = "same" if file.same else "MISSING" if file.kept is None else "DIFFERENT"
        typer.echo(f"{state:9} {file.rebuilt[:16]} {file.name}")
    different = sum(not file.same for file in compared)
    typer.echo(f"{len(compared) - different} of {len(compared)} files are the same")
    if different:
        raise typer.Exit(1)


@command(MAINTAIN)
def write_schema(config: Config = Path("config")) -> None:
    """Regenerate config/schema/*.json from the typed settings."""
    from difftransformer.planning.schemas import write_schemas

    with reporting():
        if not config.is_dir():
            raise UserError(f"{config}: no such folder; give --config that of a checkout")
        for path in write_schemas(config):
            typer.echo(path)


@command(EXPORT)
def export_model(
    model: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    output: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[
        str, typer.Option(help="huggingface, llama, diffllama, gguf or peft.")
    ] = "huggingface",
) -> None:
    """Export a trained run for transformers, lm_eval, llama.cpp or peft."""
    from difftransformer.convert.export import export_model

    with reporting():
        export_model(model, output, format)
        typer.echo(output)


@command(MAINTAIN)
def sync_tracking(
    results: FoundResults = None, tracking: FoundUri = "", config: Config = Path("config")
) -> None:
    """Send MLflow what jobs have tracked and not sent yet, and end the runs of killed jobs."""
    from difftransformer.tracking.sync import sync_tracking

    with reporting():
        root, uri = find_results(config, results, tracking)
        if results is not None and not results.is_dir():
            raise UserError(f"{results}: no such folder; give --results one with builds in it")
        report = sync_tracking(root, uri)
    if report.reason:
        raise typer.Exit(1)
