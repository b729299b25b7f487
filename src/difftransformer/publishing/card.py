"""The model card of a trained run: what it is, from which data, how well, and by which license.

All of it comes from what lies there: training.json, the manifest of its data, the evaluations of
the run over all its seeds, and the verdicts of its scale. What is missing is said to be. The card
of a model that transformers saved is made from its config.json alone.
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
MOST_METRICS = 12
_DECIMALS = 4

D = TypeVar("D")


def model_card(folder: Path, license: str | None, name: str, *, own_code: bool) -> str:
    """Return the card, Markdown behind the YAML that the Hugging Face hub reads.

    Args:
        folder: A trained run, ``results/<scale>/runs/<run>/<seed>``; its own scale is searched for
            data, evaluations and verdicts. Or a model of ours that transformers saved: its card has
            only what its config.json says.
        license: Identifier of the license of the weights, such as apache-2.0; None is mit.
        name: How the model is called.
        own_code: Whether transformers needs this package to load it.

    Raises:
        ConfigError: There is no license: the weights of a model from elsewhere are not ours to
            give one.
        DataError: The folder has no model, or a file that the card speaks of is damaged.
        CheckpointError: A model without a training record is damaged, or not one of ours.
    """
    facts = _trained(folder) if (folder / TRAINING).is_file() else _saved(folder)
    base: PretrainedModel | None = facts["base"]
    if license is None and base is not None:
        raise ConfigError(
            f"{folder}: made of {base.name}, whose license holds for it, too; name it: --license"
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
        autoescape=True,  # what no filter has made Markdown of
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
    card = environment.get_template("card.md.j2")
    return card.render(facts, head=head, license=license, name=name, own_code=own_code)


def _saved(folder: Path) -> dict[str, Any]:
    """Describe a model without a training record.

    It has a digest of the model's files, so that a card never fits other weights.
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
    """Describe a trained run by its record and what lies around its folder."""
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
    if len(around) >= 3:  # else it lies in no scale
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
    """Yield metric, suite, mean over the seeds and number of seeds."""
    yield "validation loss, nats a token", "training", *_mean(seeds, "validation_loss")
    for suite in sorted({one.suite or one.kind for one in evaluations}):
        results = [one for one in evaluations if (one.suite or one.kind) == suite]
        metrics = results[0].metrics
        # Of metrics that are means over items, counts and the like stand beside them; a suite of
        # one's own may know no items at all.
        asked = [name for name in metrics if any(name in one.per_item for one in results)]
        asked = asked or [*metrics]
        for name in asked[:MOST_METRICS]:
            yield name, suite, *_mean(results, name)
        if len(asked) > MOST_METRICS:
            yield f"and {len(asked) - MOST_METRICS} more", suite, "", ""


def _mean(results: Sequence[Result], name: str) -> tuple[str, str]:
    values = [(one, one.metrics.get(name)) for one in results]
    seeds = seed_values(values, _DECIMALS, terms={name: 1.0})
    found = mean_cell(CellKey(results[0].run, name), seeds, _DECIMALS, PublishedValues(None))
    return "undefined" if found.value is None else found.text, str(found.n)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,}"
