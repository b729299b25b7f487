"""The model card of a trained run: what it is, from which data, how well, and by which licence.

All of it comes from what lies there: training.json, the manifest of its data, the evaluations of
the run over all its seeds, and the verdicts of its scale. What is missing is said to be.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

from difftransformer.data.packed import Manifest, read_manifest
from difftransformer.errors import DataError
from difftransformer.provenance.result import TRAINING, Result, read_result
from difftransformer.reporting.formats.markdown import escape
from difftransformer.reporting.numbers import count, plain, rate
from difftransformer.reporting.statistics import mean_interval
from difftransformer.reporting.verdict_job import VerdictsDocument, read_verdicts
from difftransformer.reporting.verdicts import Verdict

MOST_METRICS = 12
_FOLDERS = re.compile(r"(?<![\w.:*/])/(?:[^\s,/]+/)+")
"""Folders of the machine that trained, before a file's name or pattern: nobody else's business."""
_USE = """Research on attention. It is a small model of a reproduction, trained on little: it knows
next to nothing, was taught no instructions, and nothing was done against wrong or harmful text. Do
not put it before people, and decide nothing by what it writes."""


@dataclass(frozen=True)
class _Known:
    """What lies around the folder of a run."""

    training: Result
    seeds: list[Result]
    evaluations: list[Result]
    manifest: Manifest | None
    verdicts: VerdictsDocument | None


def model_card(folder: Path, licence: str, name: str) -> str:
    """Return the card, Markdown behind the YAML that the Hugging Face hub reads.

    Args:
        folder: A trained run, ``results/<scale>/runs/<run>/<seed>``; its own scale is searched for
            data, evaluations and verdicts.
        licence: Identifier of the licence of the weights, such as mit.
        name: How the model is called.

    Raises:
        DataError: The folder is no trained run, or a file that the card speaks of is damaged.
    """
    if not (folder / TRAINING).is_file():
        raise DataError(
            f"{folder / TRAINING}: no such file; name the folder of a trained run, such as "
            "results/tiny/runs/diff/0"
        )
    known = _look(folder)
    head = {
        "license": licence,
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["difftransformer", "differential-attention", _variant(known.training)],
    }
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {escape(name)}",
        *_model(known.training),
        *_use(),
        *_data(known),
        *_budget(known.training),
        *_evaluation(known),
        *_verdicts(known),
        *_origin(known.training, licence),
    ]
    return "\n\n".join(parts) + "\n"


def _look(folder: Path) -> _Known:
    training = read_result(folder / TRAINING)
    scale = folder.resolve().parents[2]
    run, dataset = training.run, training.settings.get("dataset")
    seeds = [read_result(path) for path in sorted(scale.glob(f"runs/{run}/*/{TRAINING}"))]
    evaluations = [
        read_result(path) for path in sorted(scale.glob(f"evaluations/*/{run}/[0-9]*.json"))
    ]
    manifest, verdicts = scale / f"data/{dataset}/manifest.json", scale / "verdicts.json"
    return _Known(
        training,
        seeds or [training],
        evaluations,
        read_manifest(manifest) if manifest.is_file() else None,
        read_verdicts(verdicts) if verdicts.is_file() else None,
    )


def _variant(training: Result) -> str:
    attention = training.settings.get("model", {}).get("attention") or {}
    return str(attention.get("variant", "adapted"))


def _model(training: Result) -> Iterator[str]:
    model: dict[str, Any] = training.settings.get("model", {})
    yield (
        f"Run `{training.run}`, seed {training.seed}, of scale `{training.scale}` of "
        "difftransformer, which rebuilds the tables and figures of the Differential Transformer "
        "work."
    )
    attention = model.get("attention") or {}
    sizes = {
        "Attention": f"{_variant(training)}, {attention.get('num_heads')} heads of "
        f"{attention.get('head_dim')}",
        "Parameters": f"{training.metrics.get('parameters'):,}",
        "Layers, width, feed-forward": f"{model.get('num_layers')}, {model.get('d_model')}, "
        f"{model.get('ffn_dim')}",
        "Longest context": f"{model.get('max_positions')} tokens",
        "Vocabulary": f"{model.get('vocab_size')} tokens",
    }
    yield _table(["", ""], sizes.items())
    yield (
        "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("FOLDER_OR_ID", trust_remote_code=True)\n'
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER_OR_ID")\n```\n\nWhere config.json has '
        "an `auto_map`, `pip install difftransformer` brings the code that it names; else "
        "transformers alone is enough, and `trust_remote_code` can go."
    )


def _use() -> Iterator[str]:
    yield f"## Intended use and limits\n\n{_USE}"


def _data(known: _Known) -> Iterator[str]:
    title = f"## Data\n\nDataset `{escape(str(known.training.settings.get('dataset')))}`"
    if known.manifest is None:
        yield f"{title}; its manifest does not lie beside the run."
        return
    sources = known.manifest.sources
    rows = [
        (
            escape(source),
            escape(_FOLDERS.sub("", entry.origin)),
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
            "Tokens": f"{training.metrics.get('tokens'):,}",
            "Steps": f"{training.metrics.get('steps'):,}",
            "Sequences": f"{settings.get('batch_size')} of {settings.get('seq_len')} tokens a step",
            "Learning rate": rate(float(settings.get("lr", 0))),
            "Precision": settings.get("precision"),
            "Time": f"{provenance.seconds:,.0f} s (last attempt) on {_machine(training)}",
        }.items(),
    )


def _machine(training: Result) -> str:
    hardware = training.provenance.hardware
    return escape(str(hardware.get("gpu") or hardware.get("cpu")))


def _evaluation(known: _Known) -> Iterator[str]:
    rows = [("validation loss, nats a token", "training", *_mean(known.seeds, "validation_loss"))]
    for suite in sorted({one.suite or one.kind for one in known.evaluations}):
        results = [one for one in known.evaluations if (one.suite or one.kind) == suite]
        asked = [name for name in results[0].metrics if any(name in one.units for one in results)]
        for name in asked[:MOST_METRICS]:
            rows.append((escape(name), escape(suite), *_mean(results, name)))
        if len(asked) > MOST_METRICS:
            rows.append((f"and {len(asked) - MOST_METRICS} more", escape(suite), "", ""))
    yield (
        "## Evaluation\n\nMean over the seeds of this run, with the 95% interval of Student's t "
        f"over them; one seed has none. The weights here are those of seed {known.training.seed}."
    )
    yield _table(["what", "suite", "mean", "seeds"], rows)
    if not known.evaluations:
        yield "Evaluations of this run do not lie beside it: `snakemake` builds them."


def _mean(results: Iterable[Result], name: str) -> tuple[str, str]:
    values = [float(v) for one in results if (v := one.metrics.get(name)) is not None]
    if not values:
        return "undefined", "0"
    found = mean_interval(values)
    if found.low is None or found.high is None:
        return plain(found.mean, 4), "1"
    return f"{plain(found.mean, 4)} ± {(found.high - found.low) / 2:.4f}", str(found.n)


def _verdicts(known: _Known) -> Iterator[str]:
    title = "## Claims that this run is part of"
    if known.verdicts is None:
        yield f"{title}\n\nNo verdicts lie beside the run."
        return
    own = [one for one in known.verdicts.verdicts if _speaks_of(one, known.training.run)]
    if not own:
        yield f"{title}\n\nNone of the {len(known.verdicts.verdicts)} claims of its scale."
        return
    yield f"{title}\n\nAt scale `{known.verdicts.scale}`, and of no other."
    rows = [(escape(one.claim), escape(one.text), one.verdict, escape(one.reason)) for one in own]
    yield _table(["claim", "", "verdict", "why"], rows)


def _speaks_of(verdict: Verdict, run: str) -> bool:
    return any(f"-{run}-" in job for job in verdict.run_ids)


def _origin(training: Result, licence: str) -> Iterator[str]:
    provenance = training.provenance
    yield (
        f"## Origin\n\nJob `{training.job_id}`, commit `{provenance.git_commit}`"
        f"{', with changes' if provenance.git_dirty else ''}, fingerprint "
        f"`{provenance.fingerprint}`. `provenance.json` has all settings and versions."
    )
    yield (
        f"## Licence and citation\n\nThe weights: {escape(licence)}. The data have licences of "
        "their own, above. Please cite *Differential Transformer* (Ye et al., ICLR 2025, arXiv "
        "2410.05258), and for adapted models *Understanding Differential Transformer Unchains "
        "Pretrained Self-Attentions* (Kong et al., arXiv 2505.16333)."
    )


def _table(headers: list[str], rows: Iterable[Iterable[Any]]) -> str:
    return tabulate([[*row] for row in rows], headers, tablefmt="pipe", disable_numparse=True)
