"""Which training a job is, and the finished training that it starts from.

Light: torch is not needed.
"""

from pathlib import Path

from difftransformer.config.run import RunConfig
from difftransformer.data.packed import TOKENIZER, PackedDataset
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.provenance.checksums import file_sha256
from difftransformer.provenance.fingerprint import config_fingerprint, job_fingerprint
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.model_files import model_digest
from difftransformer.provenance.result import Result, read_result
from difftransformer.tracking.run_context import JobIdentity


def identify(
    stage: str,
    run: RunConfig,
    *,
    model: Path | None,
    dataset: PackedDataset,
    seed: int,
    threads: int,
    code: str,
) -> JobIdentity:
    """Return which training this is: its fingerprint covers all that its numbers depend on.

    Args:
        stage: Rule of the workflow.
        run: The resolved run.
        model: Folder of the finished training that it continues, if any.
        dataset: What it trains on.
        seed: Seed of the initial weights and of the order of the data.
        threads: Threads of one operation, for the record.
        code: Fingerprint of the code that trains.

    Raises:
        ConfigError: ``model`` is given and the run continues no other, or the other way round.
        CheckpointError: No finished training of the parent with this seed and tokenizer.
    """
    parent = _open_parent(run, model, dataset, seed)
    inputs = {"dataset": dataset.digest}
    if parent is not None:
        inputs["parent"] = parent.provenance.fingerprint
    if run.pretrained is not None:
        inputs["parent"] = model_digest(run.pretrained)
    digest = config_fingerprint(inputs) if len(inputs) > 1 else dataset.digest
    return JobIdentity(
        stage,
        run.scale,
        run.run,
        fingerprint=job_fingerprint(stage, run.decisive(), code, digest, seed),
        seed=seed,
        upstream=() if parent is None else (parent.job_id,),
        threads=threads,
    )


def _open_parent(
    slice: RunConfig, model: Path | None, dataset: PackedDataset, seed: int
) -> Result | None:
    """Return the result of the training that a run continues, once it is known to fit."""
    if model is None and (slice.init_from is None or slice.pretrained is not None):
        return None
    if slice.pretrained is not None:
        raise ConfigError(
            f"run {slice.run} adapts {slice.pretrained.name}, which is not trained here: leave the "
            "model out"
        )
    if slice.init_from is None:
        raise ConfigError(
            f"run {slice.run} has no init_from, so there is nothing to continue: leave the model "
            "out, or name the run it continues in config/runs.yaml"
        )
    if model is None:
        raise ConfigError(
            f"run {slice.run} continues {slice.init_from}: give that run's training.json as the "
            "model"
        )
    parent = require_trained(model, slice.init_from, seed)
    require_same_tokenizer(
        model, dataset, f"give the dataset of run {slice.run} the parent's as its base"
    )
    return parent


def require_trained(model: Path, run: str, seed: int) -> Result:
    """Read the result of the training that made the model; it must be of this run and seed.

    Raises:
        CheckpointError: There is no such folder, its training has not finished, or it is another.
    """
    if not (model / TRAINING).is_file():
        what = "training has not finished" if model.is_dir() else "no such model folder"
        raise CheckpointError(f"{model}: {what}; make it with `pretrain`")
    trained = read_result(model / TRAINING)
    if (trained.run, trained.seed) != (run, seed):
        raise CheckpointError(
            f"{model}: holds run {trained.run} with seed {trained.seed}, asked for {run} "
            f"with seed {seed}"
        )
    return trained


def require_same_tokenizer(model: Path, dataset: PackedDataset, cure: str) -> None:
    """Compare the tokenizer beside the model, copied from its training data, with the dataset's.

    Raises:
        CheckpointError: They differ; ``cure`` says what to do.
    """
    beside = model / TOKENIZER
    found = file_sha256(beside) if beside.is_file() else None
    if found != dataset.manifest.tokenizer.sha256:
        raise CheckpointError(
            f"{model}: was trained with another tokenizer than that of {dataset.folder}: {cure}"
        )
