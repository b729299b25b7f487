"""The identity of a training job, and the finished training that it continues. Imports no torch."""

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
    """Return the identity of a training job.

    Its fingerprint covers everything that its numbers depend on.

    Args:
        stage: Name of the Snakemake rule.
        run: The resolved config of the run.
        model: Folder of the finished training that the job continues, if any.
        dataset: The training data.
        seed: Seed of the initial weights and of the order of the data.
        threads: Threads per torch operation, for the record.
        code: Fingerprint of the code that trains.

    Raises:
        ConfigError: ``model`` is given for a run that continues no other, or missing for one that
            does.
        CheckpointError: ``model`` is not a finished training of the parent run with this seed and
            tokenizer.
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
    run_config: RunConfig, model: Path | None, dataset: PackedDataset, seed: int
) -> Result | None:
    """Return the result of the training that a run continues, after checking that it fits."""
    if model is None and (run_config.init_from is None or run_config.pretrained is not None):
        return None
    name = run_config.run
    if run_config.pretrained is not None:
        raise ConfigError(
            f"run {name} adapts the pretrained model {run_config.pretrained.name}: leave the model "
            "argument out"
        )
    if run_config.init_from is None:
        raise ConfigError(
            f"run {name} has no init_from, so there is nothing to continue: leave the model out, "
            "or name the run it continues in config/runs.yaml"
        )
    if model is None:
        raise ConfigError(
            f"run {name} continues {run_config.init_from}: give that training.json as the model"
        )
    parent = require_trained(model, run_config.init_from, seed)
    require_same_tokenizer(
        model, dataset, f"give the dataset of run {name} the parent's as its base"
    )
    return parent


def require_trained(model: Path, run: str, seed: int) -> Result:
    """Return the result of the training that wrote a model, after checking its run and seed.

    Raises:
        CheckpointError: The folder is missing, or its training is unfinished or of another run.
    """
    if not (model / TRAINING).is_file():
        problem = "training has not finished" if model.is_dir() else "no such model folder"
        raise CheckpointError(f"{model}: {problem}; make it with `pretrain`")
    trained = read_result(model / TRAINING)
    if (trained.run, trained.seed) != (run, seed):
        raise CheckpointError(
            f"{model}: holds run {trained.run} with seed {trained.seed}, expected {run} "
            f"with seed {seed}"
        )
    return trained


def require_same_tokenizer(model: Path, dataset: PackedDataset, cure: str) -> None:
    """Check that a model was trained with the dataset's tokenizer, by the copy in its folder.

    Raises:
        CheckpointError: The tokenizers differ; the message ends with ``cure``.
    """
    tokenizer = model / TOKENIZER
    digest = file_sha256(tokenizer) if tokenizer.is_file() else None
    if digest != dataset.manifest.tokenizer.sha256:
        raise CheckpointError(
            f"{model}: was trained with another tokenizer than {dataset.folder}: {cure}"
        )
