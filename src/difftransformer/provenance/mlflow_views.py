"""How MLflow shows an experiment: what it says of it, and the columns that tell its runs apart.

A view is a tag of the experiment, as MLflow's own button "Share" writes it, and is opened by its
name in the address.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

_NAME = "difftransformer"
KEY_METRICS = f"{_NAME}.key_metrics"
"""Tag of an experiment: the key metrics of its runs, which its view has as columns."""
_LAYOUT = "workflowType=machine_learning"
"""Without it MLflow opens the layout for traces of language models, which has none of our runs."""
_EARLIER = "Runs of settings that were changed since then are in the filter `State: Deleted`."


class Stage(NamedTuple):
    """An experiment: the description that is shown, and its columns, each of a kind."""

    note: str
    columns: dict[str, tuple[str, ...]]


_TRAINING = {
    "tags": ("run", "seed", "scale"),
    "params": ("model.attention.variant", "training.lr"),
    "metrics": ("loss", "validation_loss", "tokens_per_second"),
    "attributes": ("Duration",),
}
_MEASURED = {"tags": ("run", "suite", "seed", "scale"), "attributes": ("Duration",)}
_BUILT = {"tags": ("run", "scale", "rule"), "attributes": ("Duration",)}
STAGES = {
    "train_tokenizer": Stage("Tokenizers, trained or taken over.", _BUILT),
    "tokenize": Stage("Corpora, packed into shards that are mapped into memory.", _BUILT),
    "count_ngrams": Stage("N-grams that are frequent in training.", _MEASURED),
    "pretrain": Stage(
        "Trainings, from scratch or from another one's weights: losses by step.", _TRAINING
    ),
    "extend_context": Stage(
        "Trained models that continue with longer positions: losses by step.", _TRAINING
    ),
    "adapt": Stage("Trained models adapted by Dex, LoRA and others: losses by step.", _TRAINING),
    "evaluate": Stage("What was measured of a model: a run for each suite.", _MEASURED),
    "judge_answers": Stage("Answers of models, judged.", _MEASURED),
    "benchmark": Stage("Models timed side by side on one machine.", _BUILT),
    "table": Stage("Tables, and the runs behind each: its tag `upstream`.", _BUILT),
    "figure": Stage("Figures, and the runs behind each: its tag `upstream`.", _BUILT),
    "verdicts": Stage("Registered claims, tested on the tables of a scale.", _BUILT),
    "report": Stage("Reports, by the digests of their pages.", _BUILT),
}
"""By name, each the experiment ``difftransformer/<stage>``."""


def experiment_tags(stage: str, key_metrics: Iterable[str] = ()) -> dict[str, str]:
    """Return the tags of a stage's experiment; of another than `STAGES` none.

    Args:
        stage: Name of the stage.
        key_metrics: Of its runs.
    """
    if stage not in STAGES:
        return {}
    note, columns = STAGES[stage]
    shown = [f"{kind}.`{name}`" for kind, names in columns.items() for name in names]
    known = sorted(set(key_metrics))
    shown += [f"metrics.`{name}`" for name in known]
    return {
        "mlflow.note.content": f"{note} {_EARLIER}",
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{_NAME}": json.dumps({"selectedColumns": shown}),
        KEY_METRICS: json.dumps(known),
    }


def place_of(experiment: str) -> str:
    """Return where a server shows the view of an experiment, behind its address."""
    return f"/#/experiments/{experiment}/runs?viewStateShareKey={_NAME}&{_LAYOUT}"


def place_of_run(experiment: str, run: str) -> str:
    """Return where a server shows a run, behind its address."""
    return f"/#/experiments/{experiment}/runs/{run}?{_LAYOUT}"


EXPERIMENTS = f"/#/experiments?{_LAYOUT}"
"""Where a server lists its experiments, behind its address."""
