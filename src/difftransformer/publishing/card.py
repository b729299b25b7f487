"""The model card of a trained run: what it is, from which data, how well, and by which licence.

All of it comes from what lies there: training.json, the manifest of its data, the evaluations of
the run over all its seeds, and the verdicts of its scale. What is missing is said to be. The card
of a model that transformers saved is made from its config.json alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from tabulate import tabulate

from difftransformer.config.run import PretrainedModel
from difftransformer.convert.checkpoint import CONFIG, read_config
from difftransformer.data.packed import Manifest, read_manifest
from difftransformer.errors import ConfigError, DataError
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.layout import TRAINING, Layout
from difftransformer.provenance.masking import without_folders
from difftransformer.provenance.published import digest, json_digest
from difftransformer.provenance.result import Result, read_result
from difftransformer.reporting.cells import Paper, Place, mean_cell, seed_values
from difftransformer.reporting.conditions import CHANCE
from difftransformer.reporting.formats.markdown import code, escape
from difftransformer.reporting.numbers import count, counted, rate
from difftransformer.reporting.verdict_job import VerdictsDocument, read_verdicts

MODEL_FILES = (
    "model*.safetensors*", "config.json", "generation_config.json", "tokenizer*.json",
)  # fmt: skip
MOST_METRICS = 12
_DECIMALS = 4
_USE = """Research on attention. It is a small model of a reproduction, trained on little: it knows
next to nothing, was taught no instructions, and nothing was done against wrong or harmful text. Do
not put it before people, and decide nothing by what it writes."""
_USE_ADAPTED = """Research on attention. What its base may be used for, and what holds against that,
says the card of the base; nothing was done here against wrong or harmful text."""


@dataclass(frozen=True)
class _Known:
    """What lies around the folder of a run."""

    training: Result
    seeds: list[Result]
    evaluations: list[Result]
    manifest: Manifest | None
    verdicts: VerdictsDocument | None


def model_card(folder: Path, licence: str | None, name: str, *, own_code: bool) -> str:
    """Return the card, Markdown behind the YAML that the Hugging Face hub reads.

    Args:
        folder: A trained run, ``results/<scale>/runs/<run>/<seed>``; its own scale is searched for
            data, evaluations and verdicts. Or a model of ours that transformers saved: its card has
            only what its config.json says.
        licence: Identifier of the licence of the weights, such as apache-2.0; None is mit.
        name: How the model is called.
        own_code: Whether transformers needs this package to load it.

    Raises:
        ConfigError: There is no licence: the weights of a model from elsewhere are not ours to
            give one.
        DataError: The folder has no model, or a file that the card speaks of is damaged.
        CheckpointError: A model without a training record is damaged, or not one of ours.
    """
    if not (folder / TRAINING).is_file():
        return _saved_card(folder, licence or "mit", name, own_code=own_code)
    known = _look(folder)
    base = _elsewhere(known.training)
    if licence is None and base is not None:
        raise ConfigError(
            f"{folder}: made of {base.name}, whose licence holds for it, too; name it: --licence"
        )
    licence = licence or "mit"
    training = known.training
    parts = [
        *_head(licence, name, _kind(training), base),
        f"Run {code(training.run)}, seed {training.seed}, of scale {code(training.scale)} of "
        "difftransformer, which rebuilds the tables and figures of the Differential Transformer "
        "work.",
        *_model(
            training.settings.get("model", {}),
            _number(training, "parameters"),
            _adapted(training),
            own_code=own_code,
        ),
        *_use(_USE if base is None else _USE_ADAPTED),
        *_data(known),
        *_budget(training),
        *_evaluation(known),
        *_verdicts(known),
        *_origin(training),
        *_licence(licence, "The data have licences of their own, above."),
    ]
    return "\n\n".join(parts) + "\n"


def _saved_card(folder: Path, licence: str, name: str, *, own_code: bool) -> str:
    """Return the card of a model without a training record.

    It has a digest of the model's files, so that a card never fits other weights.
    """
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"{folder / TRAINING}: no such file; name the folder of a trained run, such as "
            "results/tiny/runs/diff/6, or of a model of difftransformer that transformers saved"
        )
    with torch.device("meta"):
        model = Transformer(read_config(folder))
    config = asdict(model.config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    files = {path for pattern in MODEL_FILES for path in folder.glob(pattern)}
    digests = {path.name: digest(path) for path in sorted(files)}
    parts = [
        *_head(licence, name, config["attention"]["variant"], None),
        "This is a model of difftransformer, saved without a training record, as transformers' "
        "`Trainer.save_model` and `save_pretrained` do. No results of difftransformer's pipeline "
        "are known for it.",
        *_model(config, f"{parameters:,}", {}, own_code=own_code),
        f"## Origin\n\nSHA-256 of the digests of the saved files `{json_digest(digests)[:16]}`.",
        *_licence(licence, "Its data may have licences of their own."),
    ]
    return "\n\n".join(parts) + "\n"


def _head(licence: str, name: str, kind: str, base: PretrainedModel | None) -> Iterator[str]:
    head = {
        "license": licence,
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["difftransformer", "differential-attention", kind],
    }
    if base is not None and base.folder is None:
        head["base_model"] = base.name
    yield f"---\n{yaml.safe_dump(head, sort_keys=False)}---"
    yield f"# {escape(name)}"


def _look(folder: Path) -> _Known:
    training, around = read_result(folder / TRAINING), folder.resolve().parents
    if len(around) < 3:  # it lies in no scale
        return _Known(training, [training], [], None, None)
    layout, run = Layout.of(around[2]), training.run
    seeds = [read_result(path) for path in layout.existing(layout.training(run, "*"))]
    evaluations = [read_result(path) for path in layout.existing(layout.evaluation("*", run, "*"))]
    manifest = Path(layout.manifest(str(training.settings.get("dataset"))))
    verdicts = Path(layout.verdicts)
    return _Known(
        training,
        seeds or [training],
        evaluations,
        read_manifest(manifest) if manifest.is_file() else None,
        read_verdicts(verdicts) if verdicts.is_file() else None,
    )


def _elsewhere(training: Result) -> PretrainedModel | None:
    """Return the model from elsewhere that the run adapts, if it does."""
    named = training.settings.get("pretrained")
    return None if named is None else PretrainedModel.model_validate(named)


def _kind(training: Result) -> str:
    """Return the method of an adapted run, of others the variant of their attention."""
    adapt, model = (training.settings.get(part) or {} for part in ("adapt", "model"))
    return str(adapt.get("method") or model.get("attention", {}).get("variant", "unknown"))


def _model(
    model: Mapping[str, Any], parameters: str, adapted: Mapping[str, str], *, own_code: bool
) -> Iterator[str]:
    attention = model.get("attention") or {}
    sizes = {
        **adapted,
        "Attention": f"{attention.get('variant')}, {attention.get('num_heads')} heads of "
        f"{attention.get('head_dim')}",
        "Parameters": parameters,
        "Layers, width, feed-forward": f"{model.get('num_layers')}, {model.get('d_model')}, "
        f"{model.get('ffn_dim')}",
        "Longest context": f"{model.get('max_positions')} tokens",
        "Vocabulary": f"{model.get('vocab_size')} tokens",
    }
    yield _table(["", ""], sizes.items())
    remote, none, needs = "", "", "It is a model of transformers' own."
    if own_code:
        remote, none = ", trust_remote_code=True", ", trust_remote_code=False"
        needs = (
            "The code that its config.json names is the package difftransformer's: `pip install .` "
            "in a checkout of it. The tokenizer needs none."
        )
    yield (
        "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("FOLDER_OR_ID"{remote})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("FOLDER_OR_ID"{none})\n```\n\n{needs}'
    )


def _adapted(training: Result) -> dict[str, str]:
    """Return from what an adapted run was made, and how."""
    adapt = training.settings.get("adapt")
    if not adapt:
        return {}
    base, revision = _elsewhere(training), ""
    name = f"run {training.settings.get('init_from')}, seed {training.seed}"
    if base is not None:
        name = base.name if base.folder is None else base.folder.name
        revision = f", revision {base.revision}" if base.revision else ""
    options = ", ".join(f"{key}: {value}" for key, value in adapt.items() if key != "method")
    return {
        "Made from": escape(name + revision),
        "By": escape(adapt["method"] + (f" ({options})" if options else "")),
        "Trained parameters": f"{_number(training, 'trained_parameters')}, "
        f"{_number(training, 'extra_parameters')} of them new, folded into the others",
    }


def _number(training: Result, name: str) -> str:
    value = training.metrics.get(name)
    return "unknown" if value is None else f"{value:,}"


def _use(text: str) -> Iterator[str]:
    yield f"## Intended use and limits\n\n{text}"


def _data(known: _Known) -> Iterator[str]:
    title = f"## Data\n\nDataset {code(str(known.training.settings.get('dataset')))}"
    if known.manifest is None:
        yield f"{title}; its manifest does not lie beside the run."
        return
    sources = known.manifest.sources
    rows = [
        (
            escape(source),
            escape(without_folders(entry.origin)),
            count(sum(entry.tokens.values())),
            escape(", ".join(entry.licences)),
        )
        for source, entry in sources.items()
    ]
    splits = ", ".join(
        f"{name} {count(split.tokens)} tokens" for name, split in known.manifest.splits.items()
    )
    yield f"{title}: {splits}. SHA-256 of its digest `{known.manifest.digest[:16]}`."
    yield _table(["source", "origin", "tokens", "licences"], rows)


def _budget(training: Result) -> Iterator[str]:
    settings, provenance = training.settings.get("training", {}), training.provenance
    yield "## Training\n\n" + _table(
        ["", ""],
        {
            "Tokens": _number(training, "tokens"),
            "Steps": _number(training, "steps"),
            "Sequences": f"{settings.get('batch_size')} of {settings.get('seq_len')} tokens a step",
            "Learning rate": rate(float(settings.get("lr", 0))),
            "Precision": settings.get("precision"),
            "Time": f"{provenance.seconds:,.0f} s on {_machine(training)}",
        }.items(),
    )


def _machine(training: Result) -> str:
    hardware = training.provenance.hardware
    return escape(str(hardware.get("gpu") or hardware.get("cpu")))


def _evaluation(known: _Known) -> Iterator[str]:
    rows = [("validation loss, nats a token", "training", *_mean(known.seeds, "validation_loss"))]
    for suite in sorted({one.suite or one.kind for one in known.evaluations}):
        results = [one for one in known.evaluations if (one.suite or one.kind) == suite]
        metrics = results[0].metrics
        # Of metrics that are means over items, counts and the like stand beside them; a suite of
        # one's own may know no items at all.
        asked = [name for name in metrics if any(name in one.units for one in results)]
        asked = asked or [*metrics]
        for name in asked[:MOST_METRICS]:
            rows.append((escape(name), escape(suite), *_mean(results, name)))
        if len(asked) > MOST_METRICS:
            rows.append((f"and {len(asked) - MOST_METRICS} more", escape(suite), "", ""))
    yield (
        f"## Evaluation\n\nMean over the seeds of this run ± half its 95% t interval, {CHANCE}; "
        f"one seed has none. The weights here are those of seed {known.training.seed}."
    )
    yield _table(["what", "suite", "mean", "seeds"], rows)
    if not known.evaluations:
        yield "Evaluations of this run do not lie beside it: `snakemake` builds them."


def _mean(results: Sequence[Result], name: str) -> tuple[str, str]:
    values = [(one, one.metrics.get(name)) for one in results]
    seeds = seed_values(values, _DECIMALS, terms={name: 1.0})
    found = mean_cell(Place(results[0].run, name), seeds, _DECIMALS, Paper(None))
    return "undefined" if found.value is None else found.text, str(found.n)


def _verdicts(known: _Known) -> Iterator[str]:
    title = "## Registered claims that this run is part of"
    if known.verdicts is None:
        yield f"{title}\n\nThere are no verdicts beside the run."
        return
    job = f"-{known.training.run}-"
    all_verdicts = known.verdicts.verdicts
    own = [verdict for verdict in all_verdicts if any(job in name for name in verdict.job_ids)]
    if not own:
        all_claims = counted(len(known.verdicts.verdicts), "claim")
        yield f"{title}\n\nNone of the {all_claims} of its scale."
        return
    yield f"{title}\n\nAt scale {code(known.verdicts.scale)}, and of no other."
    rows = [
        (
            escape(one.claim),
            escape(one.about.question),
            f"{one.words} ({one.where})",
            escape(without_folders(one.reason)),
        )
        for one in own
    ]
    yield _table(["claim", "", "verdict", "why"], rows)


def _origin(training: Result) -> Iterator[str]:
    provenance = training.provenance
    yield (
        f"## Origin\n\nJob {code(training.job_id)}, commit {code(str(provenance.git_commit))}"
        f"{', with changes' if provenance.git_dirty else ''}, fingerprint "
        f"`{provenance.fingerprint}`. `provenance.json` has all settings and versions."
    )


def _licence(licence: str, data: str) -> Iterator[str]:
    yield (
        f"## Licence and citation\n\nThe weights: {escape(licence)}. {data} Please cite "
        "*Differential Transformer* (Ye et al., ICLR 2025, arXiv 2410.05258), and for adapted "
        "models *Understanding Differential Transformer Unchains Pretrained Self-Attentions* (Kong "
        "et al., arXiv 2505.16333)."
    )


def _table(headers: list[str], rows: Iterable[Iterable[Any]]) -> str:
    return tabulate([[*row] for row in rows], headers, tablefmt="pipe", disable_numparse=True)
