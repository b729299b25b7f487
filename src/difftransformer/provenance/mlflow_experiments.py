"""Experiments of a store: found or made, with the columns that tell their runs apart."""

import json
from collections.abc import Iterable

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from difftransformer.provenance.mlflow_views import KEY_METRICS, experiment_tags


def find_or_create(
    client: MlflowClient, name: str, stage: str, location: str | None, owned: dict[str, str]
) -> str:
    """Return the id of a stage's experiment, made if missing.

    Args:
        client: Calls the store.
        name: Of the experiment.
        stage: Decides its tags.
        location: Where its artifacts go; None: the server decides.
        owned: Tags that it gets if it is made here.
    """
    if (found := client.get_experiment_by_name(name)) is None:
        try:
            tags = experiment_tags(stage) | owned
            return str(client.create_experiment(name, location, tags))
        except MlflowException:  # another process was faster
            if (found := client.get_experiment_by_name(name)) is None:
                raise
    show_metrics(client, found.experiment_id, stage, ())
    return str(found.experiment_id)


def show_metrics(
    client: MlflowClient, experiment: str, stage: str, key_metrics: Iterable[str]
) -> None:
    """Add metrics to the columns of an experiment, and set what a version without them left."""
    tags = client.get_experiment(experiment).tags
    known = set(json.loads(tags.get(KEY_METRICS, "[]")))
    for tag, value in experiment_tags(stage, known.union(key_metrics)).items():
        if tags.get(tag) != value:
            client.set_experiment_tag(experiment, tag, value)
