"""Identity of an evaluation job, which covers all inputs of its result. Does not import torch."""

from pathlib import Path
from typing import Any

from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.provenance.checksums import file_sha256
from difftransformer.provenance.fingerprint import config_fingerprint, job_fingerprint, named_digest
from difftransformer.provenance.model_files import model_digest
from difftransformer.tracking.run_context import JobIdentity
from difftransformer.training.identity import require_same_tokenizer, require_trained


def identify(
    eval_config: EvaluationConfig,
    *,
    model: Path | None,
    dataset: PackedDataset | None,
    ngrams: Path | None,
    seed: int,
    threads: int,
    code: str,
) -> JobIdentity:
    """Return an evaluation job's identity: its names, and a fingerprint of settings, code, inputs.

    The identity's upstream job is the one that trained the model; a pretrained model has none.

    Args:
        eval_config: The resolved suite, and the run that it evaluates.
        model: Folder of the finished training run; None for a pretrained model.
        dataset: Packed dataset that the model was trained on, or that the suite reads.
        ngrams: File of the n-grams that are frequent in the training data, for suites that need it.
        seed: Seed that the model was trained with.
        threads: Number of CPU threads of PyTorch; not part of the fingerprint.
        code: Fingerprint of the evaluation's code.

    Raises:
        CheckpointError: ``model`` is not the folder of a finished training of this run and seed, or
            it was trained with another tokenizer than the dataset's; or a file of a pretrained
            model is missing.
        DataError: The n-grams or the items of a benchmark are missing.
    """
    inputs: dict[str, Any] = {}
    upstream: tuple[str, ...] = ()
    if eval_config.pretrained is not None:
        inputs["model"] = model_digest(eval_config.pretrained)
        inputs |= {} if dataset is None else {"dataset": dataset.digest}
    elif model is None or dataset is None:
        raise ConfigError(
            f"run {eval_config.run} is trained here: give its training.json as the input `model` "
            "and its manifest.json as `data`"
        )
    else:
        trained = require_trained(model, eval_config.run, seed)
        require_same_tokenizer(model, dataset, "evaluate it on the dataset it was trained on")
        inputs |= {"dataset": dataset.digest, "model": trained.provenance.fingerprint}
        inputs["ngrams"] = None if ngrams is None else _digest_of_ngrams(ngrams)
        upstream = (trained.job_id,)
    items = eval_config.config.base_suite.files()
    inputs["items"] = named_digest(items.items()) if items else None
    return JobIdentity(
        rule="evaluate",
        scale=eval_config.scale,
        run=eval_config.run,
        suite=eval_config.suite,
        seed=seed,
        fingerprint=job_fingerprint(
            "evaluate", eval_config, code, config_fingerprint(inputs), seed
        ),
        upstream=upstream,
        threads=threads,
    )


def _digest_of_ngrams(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: no such file of frequent n-grams; make it with `count_ngrams`")
    return file_sha256(path)
