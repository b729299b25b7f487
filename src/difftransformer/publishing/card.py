"""The model card of a trained run: architecture, data, evaluation, license.

Sources are training.json, the manifest of the data, the evaluations of all seeds of the run and the
verdicts of its scale. For a model saved by transformers, the only source is its config.json.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from difftransformer.config.run import PretrainedModel
from difftransformer.convert.checkpoint import CONFIG, read_config
from difftransformer.data.packed import read_manifest
from difftransformer.errors import ConfigError, DataError
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.checksums import digest, json_digest
from difftransformer.provenance.layout import TRAINING, Layout
from difftransformer.provenance.masking import without_folders
from difftransformer.provenance.result import Result, read_result
from difftransformer.reporting.cells import CellKey, PublishedValues, mean_cell, seed_values
from difftransformer.reporting.formats.markdown import code, escape
from difftransformer.reporting.number_format import format_count, format_learning_rate, pluralize
from difftransformer.reporting.table_notes import INTERVAL_SOURCES
from difftransformer.reporting.verdict_job import read_verdicts

MODEL_FILES = (
    "model*.safetensors*", "config.json", "generation_config.json", "tokenizer*.json",
)  # fmt: skip
MAX_METRICS = 12
_DECIMALS = 4

D = TypeVar("D")


def model_card(folder: Path, license: str | None, name: str, *, own_code: bool) -> str:
    """Return the model card in Markdown, with the YAML header that the Hugging Face Hub reads.

    Args:
        folder: Folder of a trained run, ``results/<scale>/runs/<run>/<seed>``, in whose scale data,
            evaluations and verdicts are looked up. Or a folder of a difftransformer model saved
            by transformers, whose model card has only the facts in its config.json.
        license: Identifier of the license of the weights, such as apache-2.0; None means mit.
        name: Name of the model.
        own_code: Whether transformers needs this package to load the model.

    Raises:
        ConfigError: No license is given for weights adapted from a pretrained model.
        DataError: The folder has no model, or a file with facts for the model card is damaged.
        CheckpointError: A model without training.json is damaged, or not a difftransformer model.
    """
    facts = _trained(folder) if (folder / TRAINING).is_file() else _saved(folder)
    base: PretrainedModel | None = facts["base"]
    if license is None and base is not None:
        raise ConfigError(
            f"{folder}: adapted from {base.name}, whose license also applies; give --license"
        )
    license = license or "mit"
    head = ModelCardData(
        license=license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["difftransformer", "differential-attention", facts["kind"]],
        base_model=base.name if base is not None and base.folder is None else None,
    )
    environment = Environment(
        loader=PackageLoader("difftransformer", "publishing"),
        autoescape=True,  # except what a filter marks as Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code": lambda text: Markup(code(text)), "count": format_count, "counted": pluralize,
        "escaped": lambda text: Markup(escape(str(text))), "number": _number,
        "rate": format_learning_rate, "without_folders": without_folders,
    }  # fmt: skip
    template = environment.get_template("model_card.md.j2")
    return template.render(facts, head=head, license=license, name=name, own_code=own_code)


def _saved(folder: Path) -> dict[str, Any]:
    """Return the template variables for a model without training.json.

    They include a digest of the model's files, so that a model card fits only these weights.
    """
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"{folder / TRAINING}: no such file; name the folder of a trained run, such as "
            "results/tiny/runs/diff/6, or of a model of difftransformer that transformers saved"
        )
    with torch.device("meta"):
        model = Transformer(read_config(folder))
    files = {path for pattern in MODEL_FILES for path in folder.glob(pattern)}
    digests = {path.name: digest(path) for path in sorted(files)}
    config = asdict(model.config)
    return {
        "training": None,
        "adapt": None,
        "base": None,
        "kind": config["attention"]["variant"],
        "model": config,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "digest": json_digest(digests)[:16],
    }


def _trained(folder: Path) -> dict[str, Any]:
    """Return the template variables for a trained run, from training.json and its scale's files."""
    training, around = read_result(folder / TRAINING), folder.resolve().parents
    settings, hardware = training.settings, training.provenance.hardware
    model, adapt = settings["model"], settings.get("adapt") or {}
    named = settings.get("pretrained")
    base = None if named is None else PretrainedModel.model_validate(named)
    made_from = f"run {settings.get('init_from')}, seed {training.seed}"
    if base is not None:
        revision = f", revision {base.revision}" if base.revision else ""
        made_from = (base.name if base.folder is None else base.folder.name) + revision
    options = ", ".join(f"{key}: {value}" for key, value in adapt.items() if key != "method")
    manifest = verdicts = None
    seeds, evaluations = [training], []
    if len(around) >= 3:  # otherwise it is outside a results folder
        layout, run = Layout.of(around[2]), training.run
        trained = [read_result(path) for path in layout.existing(layout.training(run, "*"))]
        seeds = trained or seeds
        evaluations = [
            read_result(path) for path in layout.existing(layout.evaluation("*", run, "*"))
        ]
        manifest = _if_there(read_manifest, layout.manifest(str(settings.get("dataset"))))
        verdicts = _if_there(read_verdicts, layout.verdicts)
    own = [] if verdicts is None else verdicts.verdicts
    return {
        "training": training,
        "adapt": adapt,
        "base": base,
        "made_from": made_from,
        "by": f"{adapt.get('method')}{f' ({options})' if options else ''}",
        "kind": adapt.get("method") or model["attention"]["variant"],
        "model": model,
        "parameters": training.metrics.get("parameters"),
        "dataset": str(settings.get("dataset")),
        "recipe": settings["training"],
        "machine": str(hardware.get("gpu") or hardware.get("cpu")),
        "chance": INTERVAL_SOURCES,
        "manifest": manifest,
        "verdicts": verdicts,
        "own_verdicts": [
            verdict
            for verdict in own
            if any(f"-{training.run}-" in name for name in verdict.job_ids)
        ],
        "evaluation": [*_evaluation(seeds, evaluations)],
    }


def _if_there(read: Callable[[Path], D], path: str) -> D | None:
    return read(Path(path)) if Path(path).is_file() else None


def _evaluation(
    seeds: Sequence[Result], evaluations: Sequence[Result]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows (metric, suite, mean over seeds, number of seeds) of the evaluation table."""
    yield "validation loss, nats per token", "training", *_mean(seeds, "validation_loss")
    names = [result.suite or result.kind for result in evaluations]
    for suite in sorted({*names}):
        results = [result for result, name in zip(evaluations, names, strict=True) if name == suite]
        metrics = results[0].metrics
        # Means over items, without counts; a user's own suite may have no items.
        means = [name for name in metrics if any(name in result.per_item for result in results)]
        means = means or [*metrics]
        for name in means[:MAX_METRICS]:
            yield name, suite, *_mean(results, name)
        if len(means) > MAX_METRICS:
            yield f"and {len(means) - MAX_METRICS} more", suite, "", ""


def _mean(results: Sequence[Result], name: str) -> tuple[str, str]:
    values = [(result, result.metrics.get(name)) for result in results]
    seeds = seed_values(values, _DECIMALS, terms={name: 1.0})
    cell = mean_cell(CellKey(results[0].run, name), seeds, _DECIMALS, PublishedValues(None))
    return "undefined" if cell.value is None else cell.text, str(cell.n)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,}"
