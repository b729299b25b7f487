"""What no entry shows by itself: whether runs fit their data and parents, suites their runs."""

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


def check_run(resolver: ConfigResolver, slice: RunConfig, parent: RunConfig | None = None) -> None:
    """Check that a run's batches fit its data and its model, and that it can start as asked.

    Args:
        resolver: The configuration.
        slice: The run.
        parent: The run that it continues, if that is trained here.

    Raises:
        ConfigError: What does not fit.
    """
    place = f"{resolver.scale_file}: run {slice.run}"
    if slice.adapt is not None:
        _check_adaptation(slice, f"{resolver.runs_place}.{slice.run}")
    elif slice.pretrained is not None:
        raise ConfigError(
            f"{resolver.runs_place}.{slice.run}: a model from elsewhere is only adapted: name a "
            "method in `adapt`, or a run of ours in init_from"
        )
    training, dataset = slice.training, resolver.dataset(slice.dataset)
    tokens, batch = dataset.tokens, training.tokens_per_step
    if dataset.generated is None:
        batch += 1  # windows of text share a token; budgets of rows count targets alone
    if tokens is not None and tokens < batch:
        raise ConfigError(
            f"{resolver.folder / 'datasets.yaml'}: datasets.{slice.dataset}.tokens: "
            f"{tokens} is less than one batch of {batch} tokens (run {slice.run})"
        )
    if dataset.generated is None:  # of generated rows there is at least a whole one
        _check_validation(resolver, slice, dataset)
    if training.seq_len > slice.model.max_positions:
        raise ConfigError(
            f"{place}: seq_len {training.seq_len} is longer than max_positions "
            f"{slice.model.max_positions}"
        )
    _check_rows(slice, dataset.generated, place)
    if parent is not None:
        start = f"{resolver.runs_place}.{slice.run}.init_from"
        require_same_model(slice.model, parent.model, start, parent.run)
        check_token_ids(resolver, slice.dataset, parent, start)


def _check_validation(resolver: ConfigResolver, slice: RunConfig, dataset: DatasetConfig) -> None:
    budget, window = dataset.validation_budget, slice.training.seq_len + 1
    if budget is not None and budget < window:
        derived = " (validation_share of `tokens`)" if dataset.validation_tokens is None else ""
        raise ConfigError(
            f"{resolver.folder / 'datasets.yaml'}: datasets.{slice.dataset}.validation_tokens: "
            f"{budget}{derived} is less than one window of {window} tokens (run {slice.run}): set "
            "more, or a shorter training.seq_len"
        )


def _check_rows(slice: RunConfig, rows: GeneratedRows | None, place: str) -> None:
    """Generated rows are trained on whole; a probe is made of recall rows that there can be."""
    length, probe = slice.training.seq_len, slice.training.probe
    if rows is not None and length != rows.row_length - 1:
        raise ConfigError(
            f"{place}: seq_len {length}: rows of dataset {slice.dataset} have {rows.row_length} "
            f"tokens: set training.seq_len to {rows.row_length - 1}"
        )
    if rows is not None and slice.training.document_mask:
        raise ConfigError(
            f"{place}: training.document_mask is for packed text: each row of dataset "
            f"{slice.dataset} is a document of its own; leave it out"
        )
    if probe is None:
        return
    if not isinstance(rows, RecallConfig):
        raise ConfigError(
            f"{place}: training.probe measures recall, dataset {slice.dataset} has no recall rows: "
            "leave training.probe out, or choose a dataset that has some"
        )
    needles, most = max(probe.needles), rows.most_needles(rows.haystack_length)
    if needles > most:
        raise ConfigError(
            f"{place}: training.probe.needles: {needles} do not fit into a row of dataset "
            f"{slice.dataset}: at most {most}"
        )
    probed = rows.haystack_length + 2 * probe.queries
    if probed - 1 > slice.model.max_positions:
        raise ConfigError(
            f"{place}: training.probe.queries: {probe.queries} make rows of {probed} tokens, "
            f"max_positions is {slice.model.max_positions}: ask fewer"
        )


def _check_adaptation(slice: RunConfig, place: str) -> None:
    assert slice.adapt is not None
    if slice.init_from is None:
        raise ConfigError(f"{place}.adapt: there is nothing to adapt; name a run in init_from")
    method = configure(slice.adapt, f"{place}.adapt")
    try:
        method.require_fit(slice.model)
    except ValueError as error:
        raise ConfigError(f"{place}.adapt.{error}") from None
    try:
        if slice.pretrained is None:
            llama_config_kwargs(slice.model, "llama")
    except CheckpointError as error:
        raise ConfigError(
            f"{place}.adapt: run {slice.init_from} is no plain Llama: {error}"
        ) from None
    for key, given in (
        ("save_checkpoints_at", slice.training.save_checkpoints_at),
        ("compile", slice.training.compile),
    ):
        if given:
            raise ConfigError(f"{place}: training.{key} has no meaning with adapt; leave it out")


def check_token_ids(resolver: ConfigResolver, dataset: str, run: RunConfig, place: str) -> None:
    """Check that ids mean the same in a dataset as in that of a run.

    Raises:
        ConfigError: They do not.
    """
    owner = resolver.tokenizer_owner(run.dataset)
    ours, theirs = resolver.dataset(dataset), resolver.dataset(run.dataset)
    shared = resolver.tokenizer_owner(dataset) == owner and ours.generated is None
    if not shared and not same_token_ids(ours, theirs):
        raise ConfigError(
            f"{place}: dataset {dataset} has other token ids than {run.dataset} of "
            f"run {run.run}: give it `base: {owner}`, or use a dataset that has it as base"
        )


def check_evaluation(
    pretrained_runs: PretrainedRuns, suite: str, run: str, trained: RunConfig | None, place: str
) -> None:
    """Check that a suite can evaluate a run, as far as settings alone show it.

    Args:
        pretrained_runs: The pretrained models among the runs.
        suite: Name of the suite.
        run: Name of the run.
        trained: The run if it is trained here; None for a pretrained model, whose context is known
            once it is loaded.
        place: Where the evaluation is requested, for messages.

    Raises:
        ConfigError: The suite does not fit the run's model or data, or cannot measure a pretrained
            model.
    """
    if reason := pretrained_runs.refusal(suite, run):
        raise ConfigError(f"{place}: {reason}")
    resolver, text = pretrained_runs.resolver, pretrained_runs.text(suite, run)
    at = f"{resolver.folder / 'evaluations.yaml'}: suites.{suite}"
    positions, rows = sys.maxsize, None
    if trained is not None:
        if text is not None:
            check_token_ids(resolver, resolver.read_by(run, text), trained, place)
        positions = trained.model.max_positions
        rows = resolver.dataset(trained.dataset).generated
    elif text is not None and resolver.dataset(resolver.dataset_of(text)).generated:
        raise ConfigError(
            f"{at}: dataset {text} is generated, which the external model '{run}' "
            "cannot read: name a dataset of text"
        )
    if reason := resolver.suite(suite).asked.incompatibility(positions, rows):
        raise ConfigError(f"{at} on run {run} at scale {resolver.project.scale}: {reason}")


def check_suites(resolver: ConfigResolver, part: SectionConfig, place: str) -> None:
    """Check that a section's suites are of its evaluation, if that has suites of its own.

    Raises:
        ConfigError: One is not, or is unknown.
    """
    kinds = {suite: resolver.suite(suite).kind for suite in resolver.suites}
    has_own = evaluation(part.evaluation).suite is not None
    for suite in part.suites:
        kind = lookup(kinds, suite, "suite", place)
        if has_own and kind != part.evaluation:
            own = [name for name, kind in kinds.items() if kind == part.evaluation]
            raise ConfigError(
                f"{place}: '{suite}' is a suite of {kind}, not of {part.evaluation}"
                f"{nearest(suite, own)}"
            )
