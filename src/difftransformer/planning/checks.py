"""Checks across config entries: do runs fit their data and parent runs, and suites their runs."""

import sys

from difftransformer.config.artifacts import SectionConfig
from difftransformer.config.data import DatasetConfig
from difftransformer.config.evaluations import evaluation
from difftransformer.config.generated_rows import GeneratedRows, RecallConfig
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.run import RunConfig, require_same_model, same_token_ids
from difftransformer.convert.llama import llama_config_kwargs
from difftransformer.errors import CheckpointError, ConfigError, lookup, nearest
from difftransformer.planning.pretrained import PretrainedRuns
from difftransformer.training.methods import configure


def check_run(
    resolver: ConfigResolver, run_config: RunConfig, parent: RunConfig | None = None
) -> None:
    """Check that a run is consistent with its data, its model and its parent run.

    Args:
        resolver: The configuration.
        run_config: The run.
        parent: The run whose weights it starts from, if that run is trained here.

    Raises:
        ConfigError: The run is not consistent; the message says why.
    """
    location = f"{resolver.scale_file}: run {run_config.run}"
    if run_config.adapt is not None:
        _check_adaptation(run_config, f"{resolver.runs_location}.{run_config.run}")
    elif run_config.pretrained is not None:
        raise ConfigError(
            f"{resolver.runs_location}.{run_config.run}: a pretrained model is only adapted: "
            "name a method in `adapt`, or a run of ours in init_from"
        )
    training, dataset = run_config.training, resolver.dataset(run_config.dataset)
    tokens, batch = dataset.tokens, training.tokens_per_step
    if dataset.generated is None:
        batch += 1  # windows of text overlap by a token; generated rows count targets only
    if tokens is not None and tokens < batch:
        raise ConfigError(
            f"{resolver.folder / 'datasets.yaml'}: datasets.{run_config.dataset}.tokens: "
            f"{tokens} is less than one batch of {batch} tokens (run {run_config.run})"
        )
    if dataset.generated is None:  # generated rows are always complete
        _check_validation(resolver, run_config, dataset)
    if training.seq_len > run_config.model.max_positions:
        raise ConfigError(
            f"{location}: seq_len {training.seq_len} is longer than max_positions "
            f"{run_config.model.max_positions}"
        )
    _check_rows(run_config, dataset.generated, location)
    if parent is not None:
        start = f"{resolver.runs_location}.{run_config.run}.init_from"
        require_same_model(run_config.model, parent.model, start, parent.run)
        check_token_ids(resolver, run_config.dataset, parent, start)


def _check_validation(
    resolver: ConfigResolver, run_config: RunConfig, dataset: DatasetConfig
) -> None:
    budget, window = dataset.validation_budget, run_config.training.seq_len + 1
    if budget is not None and budget < window:
        derived = " (validation_share of `tokens`)" if dataset.validation_tokens is None else ""
        raise ConfigError(
            f"{resolver.folder / 'datasets.yaml'}: "
            f"datasets.{run_config.dataset}.validation_tokens: "
            f"{budget}{derived} is less than one window of {window} tokens (run "
            f"{run_config.run}): set more, or a shorter training.seq_len"
        )


def _check_rows(run_config: RunConfig, rows: GeneratedRows | None, location: str) -> None:
    """Check that seq_len fits generated rows and that a probe fits recall rows."""
    length, probe = run_config.training.seq_len, run_config.training.probe
    if rows is not None and length != rows.row_length - 1:
        raise ConfigError(
            f"{location}: seq_len {length}: rows of dataset {run_config.dataset} have "
            f"{rows.row_length} tokens: set training.seq_len to {rows.row_length - 1}"
        )
    if rows is not None and run_config.training.document_mask:
        raise ConfigError(
            f"{location}: training.document_mask is for packed text: each row of dataset "
            f"{run_config.dataset} is its own document; leave it out"
        )
    if probe is None:
        return
    if not isinstance(rows, RecallConfig):
        raise ConfigError(
            f"{location}: training.probe measures recall, dataset {run_config.dataset} has no "
            "recall rows: leave training.probe out, or choose a dataset that has some"
        )
    needles, most = max(probe.needles), rows.most_needles(rows.haystack_length)
    if needles > most:
        raise ConfigError(
            f"{location}: training.probe.needles: {needles} do not fit into a row of dataset "
            f"{run_config.dataset}: at most {most}"
        )
    probed = rows.haystack_length + 2 * probe.queries
    if probed - 1 > run_config.model.max_positions:
        raise ConfigError(
            f"{location}: training.probe.queries: {probe.queries} make rows of {probed} tokens, "
            f"max_positions is {run_config.model.max_positions}: ask fewer"
        )


def _check_adaptation(run_config: RunConfig, location: str) -> None:
    assert run_config.adapt is not None
    if run_config.init_from is None:
        raise ConfigError(f"{location}.adapt: nothing to adapt; set a run in init_from")
    method = configure(run_config.adapt, f"{location}.adapt")
    try:
        method.require_fit(run_config.model)
    except ValueError as error:
        raise ConfigError(f"{location}.adapt.{error}") from None
    try:
        if run_config.pretrained is None:
            llama_config_kwargs(run_config.model, "llama")
    except CheckpointError as error:
        raise ConfigError(
            f"{location}.adapt: run {run_config.init_from} is not a plain Llama: {error}"
        ) from None
    for key, is_set in (
        ("save_checkpoints_at", run_config.training.save_checkpoints_at),
        ("compile", run_config.training.compile),
    ):
        if is_set:
            raise ConfigError(f"{location}: training.{key} has no meaning with adapt; leave it out")


def check_token_ids(resolver: ConfigResolver, dataset: str, run: RunConfig, location: str) -> None:
    """Check that a dataset has the same token ids as the training data of a run.

    Args:
        resolver: The configuration.
        dataset: Name of the dataset.
        run: The run.
        location: Place in the configuration, for error messages.

    Raises:
        ConfigError: The token ids differ.
    """
    owner = resolver.tokenizer_owner(run.dataset)
    ours, theirs = resolver.dataset(dataset), resolver.dataset(run.dataset)
    shared = resolver.tokenizer_owner(dataset) == owner and ours.generated is None
    if not shared and not same_token_ids(ours, theirs):
        raise ConfigError(
            f"{location}: dataset {dataset} has other token ids than {run.dataset} of "
            f"run {run.run}: give it `base: {owner}`, or use a dataset that has it as base"
        )


def check_evaluation(
    pretrained_runs: PretrainedRuns, suite: str, run: str, trained: RunConfig | None, location: str
) -> None:
    """Check that a suite can evaluate a run, as far as their settings show.

    Args:
        pretrained_runs: The pretrained models among the runs.
        suite: Name of the suite.
        run: Name of the run.
        trained: Config of the run if it is trained here; None for a pretrained model, whose context
            length is known only after loading.
        location: Place in the configuration that requests the evaluation, for error messages.

    Raises:
        ConfigError: The suite does not fit the run's model or data, or does not support pretrained
            models.
    """
    if reason := pretrained_runs.incompatibility(suite, run):
        raise ConfigError(f"{location}: {reason}")
    resolver, text = pretrained_runs.resolver, pretrained_runs.dataset_of(suite, run)
    at = f"{resolver.folder / 'evaluations.yaml'}: suites.{suite}"
    positions, rows = sys.maxsize, None
    if trained is not None:
        if text is not None:
            check_token_ids(resolver, resolver.read_by(run, text), trained, location)
        positions = trained.model.max_positions
        rows = resolver.dataset(trained.dataset).generated
    elif text is not None and resolver.dataset(resolver.dataset_of(text)).generated:
        raise ConfigError(
            f"{at}: dataset {text} is generated, which the external model '{run}' "
            "cannot read: name a dataset of text"
        )
    if reason := resolver.suite(suite).base_suite.incompatibility(positions, rows):
        raise ConfigError(f"{at} on run {run} at scale {resolver.project.scale}: {reason}")


def check_suites(resolver: ConfigResolver, part: SectionConfig, location: str) -> None:
    """Check that the suites of an artifact's section belong to the section's evaluation.

    A section whose evaluation defines no suites may name suites of any evaluation.

    Raises:
        ConfigError: A suite is unknown, or belongs to another evaluation.
    """
    kinds = {suite: resolver.suite(suite).kind for suite in resolver.suites}
    has_own = evaluation(part.evaluation).suite is not None
    for suite in part.suites:
        kind = lookup(kinds, suite, "suite", location)
        if has_own and kind != part.evaluation:
            of_evaluation = [name for name, kind in kinds.items() if kind == part.evaluation]
            raise ConfigError(
                f"{location}: '{suite}' is a suite of {kind}, not of {part.evaluation}"
                f"{nearest(suite, of_evaluation)}"
            )
