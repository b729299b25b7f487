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
from difftransformer.training.measure import History, accuracy_column, learned_at
from difftransformer.training.method import Adapter

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")

Metrics = dict[str, float | int | None]


def publish(
    output: Path,
    model: LanguageModel,
    history: History,
    dataset: PackedDataset,
    result: Result,
    kept: Sequence[Path],
    adapter: Adapter | None = None,
) -> None:
    """Write every declared output whole, the result last; the same bytes at every call.

    ``kept`` are weights of steps before the last. Their folder is there without any, too.
    ``adapter`` goes into a file of its own, its settings into the file's head.

    Only the times in the result's provenance differ between calls.

    Raises:
        CheckpointError: the file system refused.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in (TRAINING, ADAPTER):  # neither ever stands beside weights of another run
            (output / name).unlink(missing_ok=True)
        save_language_model(output, model)
        shutil.rmtree(output / INTERMEDIATE, ignore_errors=True)
        make_lasting_folder(output / INTERMEDIATE)
        known = TOKENIZER if model.tokenizer is None else TOKENIZER[:1]
        beside = [path for name in known if (path := dataset.folder / name).is_file()]
        for folder, paths in ((output, beside), (output / INTERMEDIATE, kept)):
            for path in paths:
                with replacing(folder / path.name) as aside:
                    shutil.copyfile(path, aside)
        if adapter is not None:
            # One entry: safetensors writes several in any order.
            head = {"settings": json.dumps(adapter.settings, sort_keys=True, default=sorted)}
            write_bytes(output / ADAPTER, save(adapter.tensors, metadata=head))
        history.write_csv(output / HISTORY)
        files = [path for path in output.rglob("*") if path.is_file() and path.name[0] != "."]
        write_result(output / TRAINING, result, files)
    except OSError as error:
        raise CheckpointError(
            f"the trained model could not be written to {output} ({error.strerror}); its last "
            "checkpoint has it all: make room there and start again, nothing is trained twice"
        ) from error


def training_metrics(
    model: LanguageModel,
    history: History,
    config: TrainingConfig,
    steps: int,
    diverged_at: int | None = None,
) -> Metrics:
    """Return final losses, sizes, ``steps`` done and, with a probe, the steps to learn retrieval.

    A run that records its divergence says whether it diverged, at which step, and how many steps it
    was to have. If it did, ``steps`` and ``tokens`` end there, and it has no final losses.
    """
    whole = diverged_at is None
    metrics: Metrics = {
        "train_loss": history.last("loss") if whole else None,
        "validation_loss": history.last("validation_loss") if whole else None,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "non_embedding_parameters": _non_embedding(model),
        "steps": steps,
        "tokens": steps * config.tokens_per_step,
    }
    if config.on_divergence == "record":
        metrics |= {
            "diverged": int(not whole),
            "diverged_at": diverged_at,
            "planned_steps": config.total_steps,
        }
    return metrics | (_retrieval_metrics(history, config.probe) if config.probe else {})


def _retrieval_metrics(history: History, probe: ProbeConfig) -> Metrics:
    """``steps_to_learn`` retrieval, None if it did not; ``learned``: 1 or 0 accordingly."""
    step = learned_at(history, probe)
    metrics: Metrics = {"steps_to_learn": step, "learned": int(step is not None)}
    columns = map(accuracy_column, probe.needles)
    return metrics | {column: history.last(column) for column in columns}


def _non_embedding(model: LanguageModel) -> int:
    """Parameters without the token embedding and the output matrix."""
    outside = {id(model.embedding_weight), id(model.output_weight)}
    return sum(p.numel() for p in model.parameters() if id(p) not in outside)
