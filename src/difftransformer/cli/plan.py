"""Commands that inspect the configuration and estimate costs; they run nothing."""

import json
import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from difftransformer.cli.command_group import (
    INSPECT,
    Artifact,
    ConfigDir,
    Scale,
    Seeds,
    command,
    load_plan,
)
from difftransformer.config.inheritance import flat
from difftransformer.config.yaml_files import as_settings, parse_value
from difftransformer.errors import UserError
from difftransformer.provenance.command_errors import report_errors


@command("check-config", INSPECT, "", "--scale paper")
def check_config(scale: Scale = None, config_dir: ConfigDir = Path("config")) -> None:
    """Validate the whole configuration at a scale, and list its artifacts."""
    with report_errors():
        plan = load_plan(config_dir, scale)
        typer.echo(
            f"{config_dir}: valid at scale {plan.resolver.project.scale}: "
            f"{len(plan.resolver.runs)} runs, {len(plan.resolver.suites)} suites, artifacts "
            f"{', '.join(plan.artifacts.available)}"
        )


@command("show", INSPECT, "diff", "diff_v2 --scale small --origins")
def show(
    run: Annotated[str, typer.Argument(help="Run of runs.yaml.")],
    origins: Annotated[
        bool, typer.Option("--origins", help="Print the file and key that set each value.")
    ] = False,
    scale: Scale = None,
    config_dir: ConfigDir = Path("config"),
) -> None:
    """Print the resolved configuration of a run, its parameter counts and its `match` result."""
    with report_errors():
        plan = load_plan(config_dir, scale)
        slice = plan.jobs.run(run)
        if origins:
            key_origins = plan.resolver.layers(run).origins()
            for key, value in flat(slice.model_dump(mode="json", include={"model", "training"})):
                origin = key_origins.get(key, "default, or follows from other settings")
                typer.echo(f"{key} = {value}  # {origin}")
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
            matched_to = plan.resolver.entry(run).match
            assert matched_to is not None
            typer.echo(
                f"ffn_dim {match.ffn_dim}, matched to {matched_to.to} by {match.measure}: "
                f"{match.size:,} for {match.target:,}, {match.relative_error:+.2%}",
                err=True,
            )


@command("estimate-cost", INSPECT, "", "table1 --scale gpu --seeds 3")
def estimate_cost(
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
            help="For `make plan`: use the scale of config.yaml, and print nothing for a scale "
            "without a machine.",
        ),
    ] = False,
    config_dir: ConfigDir = Path("config"),
) -> None:
    """Estimate the cost of the training runs behind artifacts: GPU-hours, days, disk."""
    from difftransformer.errors import lookup
    from difftransformer.planning.costs import lines

    with report_errors():
        model = None if pretrained is None else parse_value(pretrained, "--pretrained")
        scale = scale or (None if as_planned else "paper")
        plan = load_plan(config_dir, scale, seeds=seeds, pretrained=model)
        if as_planned and plan.resolver.scale.machine is None:
            return
        names = {**plan.groups, **plan.artifacts.available}
        for target in targets or []:
            if target in plan.resolver.artifacts:
                plan.require(target, "estimate-cost")
            lookup(names, target, "artifact or group", "estimate-cost")
        artifacts = plan.requested_artifacts(targets or [])
        plan.require_room(plan.trainings(artifacts))
        for line in lines(plan, artifacts):
            typer.echo(line)


@command("estimate-judge-cost", INSPECT, "table4", "table4 --scale smoke")
def estimate_judge_cost(
    artifact: Artifact,
    scale: Scale = None,
    seeds: Seeds = None,
    config_dir: ConfigDir = Path("config"),
) -> None:
    """Estimate calls and price of the judging endpoint for the existing answers; sends nothing."""
    with report_errors():
        from difftransformer.config.evaluations import module_of

        # The setting `judge` does not matter here, and an endpoint would need its key.
        plan = load_plan(config_dir, scale, seeds=seeds, judge="lexical")
        cache, missing = Path(plan.jobs.layout.kept_judgments), 0
        plan.require(artifact, "estimate-judge-cost")
        folders_by_kind = plan.artifacts.answer_folders(artifact)
        if not folders_by_kind:
            judged = filter(plan.artifacts.answer_folders, plan.artifacts.available)
            raise UserError(
                f"{artifact}: has no answers to judge; artifacts with answers: {', '.join(judged)}"
            )
        for kind, answers in folders_by_kind.items():
            judge, folders = import_module(module_of(kind, "judge")), [*map(Path, answers)]
            present, estimate = judge.estimate(
                plan.resolver.project.judges.endpoint, folders, cache
            )
            typer.echo(estimate)
            missing += len(folders) - present
        if missing:
            words = shlex.join(as_settings({"scale": plan.resolver.project.scale, "seeds": seeds}))
            typer.echo(
                f"{missing} runs have no answers yet: "
                f"`snakemake {artifact} --config {words}` generates them"
            )
