"""Views in MLflow: experiments with their columns, and links from runs to the report.

A view is stored as a tag of the experiment, in the format of MLflow's button "Share". A web address
with the view's name opens it.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mlflow.entities import Run

_NAME = "difftransformer"
KEY_METRICS = f"{_NAME}.key_metrics"
"""Tag of an experiment with the key metrics of its runs, which are columns of its view."""
NOTE = "mlflow.note.content"
"""Tag with the description of an experiment or a run."""
_LAYOUT = "workflowType=machine_learning"
"""Query parameter that selects MLflow's layout for runs; the other layout shows LLM traces."""
_SUPERSEDED = "Runs of earlier settings are listed by the filter `State: Deleted`."


class Stage(NamedTuple):
    """An MLflow experiment: its description, and the columns of its view by kind of column."""

    note: str
    columns: dict[str, tuple[str, ...]]


_TRAINING = {
    "tags": ("run", "seed", "scale"),
    "params": ("model.attention.variant", "training.lr"),
    "metrics": ("loss", "validation_loss", "tokens_per_second"),
    "attributes": ("Duration",),
}
_EVALUATION = {"tags": ("run", "suite", "seed", "scale"), "attributes": ("Duration",)}
_OUTPUT = {"tags": ("run", "scale", "rule"), "attributes": ("Duration",)}
STAGES = {
    "train_tokenizer": Stage("Tokenizers, trained or copied.", _OUTPUT),
    "tokenize": Stage("Corpora, tokenized into memory-mapped shards.", _OUTPUT),
    "count_ngrams": Stage("N-grams that are frequent in the training text.", _EVALUATION),
    "pretrain": Stage(
        "Trainings, from scratch or from the weights of another run: losses by step.", _TRAINING
    ),
    "extend_context": Stage("Trained models whose context is extended: losses by step.", _TRAINING),
    "adapt": Stage("Trained models adapted by Dex, LoRA and others: losses by step.", _TRAINING),
    "evaluate": Stage("Evaluations: one run per model and suite.", _EVALUATION),
    "judge_answers": Stage("Judgments of models' answers.", _EVALUATION),
    "benchmark": Stage("Models timed side by side on one machine.", _OUTPUT),
    "table": Stage("Tables, and the runs behind each: its tag `upstream`.", _OUTPUT),
    "figure": Stage("Figures, and the runs behind each: its tag `upstream`.", _OUTPUT),
    "verdicts": Stage("Registered claims, tested on the tables of a scale.", _OUTPUT),
    "report": Stage("Reports, by the digests of their pages.", _OUTPUT),
}
"""Experiments by rule of the workflow; the name of each in MLflow is ``difftransformer/<rule>``."""


def experiment_tags(
    stage: str, tags: Mapping[str, str] = MappingProxyType({}), key_metrics: Iterable[str] = ()
) -> dict[str, str]:
    """Return the tags of an experiment that must be set to update its description and view.

    Args:
        stage: Rule of the experiment; one that is not in `STAGES` has no tags to set.
        tags: Present tags of the experiment.
        key_metrics: Metrics to show besides those that the view shows already.
    """
    if stage not in STAGES:
        return {}
    note, columns = STAGES[stage]
    metrics = sorted({*json.loads(tags.get(KEY_METRICS, "[]")), *key_metrics})
    selected = [f"{kind}.`{name}`" for kind, names in columns.items() for name in names]
    selected += [f"metrics.`{name}`" for name in metrics]
    updated = {
        NOTE: f"{note} {_SUPERSEDED}",
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{_NAME}": json.dumps({"selectedColumns": selected}),
        KEY_METRICS: json.dumps(metrics),
    }
    return {name: value for name, value in updated.items() if tags.get(name) != value}


def view_path(experiment: str) -> str:
    """Return the path and query of an experiment's view in MLflow's web interface."""
    return f"/#/experiments/{experiment}/runs?viewStateShareKey={_NAME}&{_LAYOUT}"


def run_path(experiment: str, run: str) -> str:
    """Return the path and query of a run's page in MLflow's web interface."""
    return f"/#/experiments/{experiment}/runs/{run}?{_LAYOUT}"


EXPERIMENTS = f"/#/experiments?{_LAYOUT}"
"""Path and query of the list of experiments in MLflow's web interface."""


REPORTS = "reports"
"""Path of the reports, relative to the MLflow address of `difftransformer ui`."""
_IN_THE_REPORT = "\n\nIn the report: "

Tags = dict[str, dict[str, str]]
"""Tags to set: id of the run -> name of the tag -> value."""


def artifact_tags(runs: Iterable[Run], served: bool) -> Tags:
    """Return the tags that runs still lack to name the tables and figures that show them.

    A table or figure shows its upstream runs and their upstream runs. Each such run gets a tag such
    as `shown_in.table6`, and its description lists the pages of the report.

    Args:
        runs: All MLflow runs of a results folder.
        served: Whether `difftransformer ui` serves this store; then the descriptions have links.
    """
    by_job = {run.data.tags.get("job_id", ""): run for run in runs}
    pages: dict[str, set[tuple[str, str]]] = {}
    missing: Tags = {}
    for artifact in by_job.values():
        tags = artifact.data.tags
        if tags.get("rule") not in ("table", "figure"):
            continue
        name, queue, visited = tags["run"], [artifact], set[str]()
        while queue:
            run = queue.pop()
            names = set(run.data.tags.get("upstream", "").split()) - visited
            visited |= names
            queue += [by_job[name] for name in names if name in by_job]
            pages.setdefault(run.data.tags["job_id"], set()).add((name, tags.get("scale", "")))
            if run is not artifact and f"shown_in.{name}" not in run.data.tags:
                missing.setdefault(run.info.run_id, {})[f"shown_in.{name}"] = "yes"
    for job, artifacts in pages.items():
        run = by_job[job]
        note = run.data.tags.get(NOTE, "")
        if (description := _with_links(note, artifacts, served)) != note:
            missing.setdefault(run.info.run_id, {})[NOTE] = description
    return missing


def _with_links(note: str, pages: Iterable[tuple[str, str]], served: bool) -> str:
    links = [
        f"[{name}]({REPORTS}/{scale}/{name}.html)" if served else f"{name} at scale {scale}"
        for name, scale in sorted(pages)
    ]
    return note.partition(_IN_THE_REPORT)[0] + _IN_THE_REPORT + ", ".join(links)
