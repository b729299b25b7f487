"""The output folder of a finished training: model, tokenizer, history and, last, the result."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save

from difftransformer.config.training import ProbeConfig, TrainingConfig
from difftransformer.convert.checkpoint import ADAPTER, save_language_model
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError
from difftransformer.models.language_model import LanguageModel
from difftransformer.provenance.atomic import make_lasting_folder, replacing, write_bytes
from difftransformer.provenance.layout import HISTORY, INTERMEDIATE, TRAINING
from difftransformer.provenance.result import Result, write_result
from difftransformer.training.method import Adapter
from difftransformer.training.validation import History, accuracy_column, learned_at

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")

Metrics = dict[str, float | int | None]


def publish(
    output: Path,
    model: LanguageModel,
    history: History,
    dataset: PackedDataset,
    result: Result,
    weights: Sequence[Path],
    adapter: Adapter | None = None,
) -> None:
    """Write all outputs of a finished training atomically, its result last.

    Repeated calls write the same bytes, except for the times in the result's provenance.

    Args:
        output: The output folder.
        model: The trained model.
        history: The training history.
        dataset: The training data, whose tokenizer is copied.
        result: The result of the job.
        weights: Files of intermediate weights to copy; the folder for them is always created.
        adapter: The adapter, if any; its settings go into the metadata of its file.

    Raises:
        CheckpointError: The file system refused.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in (TRAINING, ADAPTER):  # never next to weights of another run
            (output / name).unlink(missing_ok=True)
        save_language_model(output, model)
        shutil.rmtree(output / INTERMEDIATE, ignore_errors=True)
        make_lasting_folder(output / INTERMEDIATE)
        names = TOKENIZER if model.tokenizer is None else TOKENIZER[:1]
        tokenizer = [path for name in names if (path := dataset.folder / name).is_file()]
        for folder, paths in ((output, tokenizer), (output / INTERMEDIATE, weights)):
            for path in paths:
                with replacing(folder / path.name) as temporary:
                    shutil.copyfile(path, temporary)
        if adapter is not None:
            # One entry: safetensors does not order several.
            metadata = {"settings": json.dumps(adapter.settings, sort_keys=True, default=sorted)}
            write_bytes(output / ADAPTER, save(adapter.tensors, metadata=metadata))
        history.write_csv(output / HISTORY)
        files = [path for path in output.rglob("*") if path.is_file() and path.name[0] != "."]
        write_result(output / TRAINING, result, files)
    except OSError as error:
        raise CheckpointError(
            f"the trained model could not be written to {output} ({error.strerror}); its last "
            "checkpoint is complete: make room there and start again to publish it"
        ) from error


def training_metrics(
    model: LanguageModel,
    history: History,
    config: TrainingConfig,
    steps: int,
    diverged_at: int | None = None,
) -> Metrics:
    """Return the final losses, the model sizes and ``steps``.

    With a retrieval probe they include the steps to learn retrieval. With ``on_divergence: record``
    they include whether and when the run diverged, and the planned steps. A diverged run has no
    final losses, and its ``steps`` and ``tokens`` end at the divergence.
    """
    completed = diverged_at is None
    metrics: Metrics = {
        "train_loss": history.last("loss") if completed else None,
        "validation_loss": history.last("validation_loss") if completed else None,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "non_embedding_parameters": _non_embedding(model),
        "steps": steps,
        "tokens": steps * config.tokens_per_step,
    }
    if config.on_divergence == "record":
        metrics |= {
            "diverged": int(not completed),
            "diverged_at": diverged_at,
            "planned_steps": config.total_steps,
        }
    return metrics | (_retrieval_metrics(history, config.probe) if config.probe is not None else {})


def _retrieval_metrics(history: History, probe: ProbeConfig) -> Metrics:
    """Return ``steps_to_learn``, None if retrieval was not learned, and ``learned``, 1 or 0."""
    step = learned_at(history, probe)
    metrics: Metrics = {"steps_to_learn": step, "learned": int(step is not None)}
    columns = map(accuracy_column, probe.needles)
    return metrics | {column: history.last(column) for column in columns}


def _non_embedding(model: LanguageModel) -> int:
    """Return the number of parameters without token embedding and output matrix."""
    outside = {id(model.embedding_weight), id(model.output_weight)}
    return sum(p.numel() for p in model.parameters() if id(p) not in outside)
