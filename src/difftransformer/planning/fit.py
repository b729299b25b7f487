"""What no entry shows by itself: whether a run fits its data and its parent."""

from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import RunSlice, require_same_model, same_token_ids
from difftransformer.errors import ConfigError
from difftransformer.training.methods import method_module


def check_training(catalogue: Catalogue, slice: RunSlice) -> None:
    """Check that a run's method exists, and that its batches fit its data and its model.

    Raises:
        ConfigError: What does not.
    """
    place = f"{catalogue.scale_file}: run {slice.run}"
    method_module(slice.training.method, f"{place}: training.method")
    training, tokens = slice.training, catalogue.dataset(slice.dataset).tokens
    batch = training.batch_size * (training.seq_len + 1)
    if tokens is not None and tokens < batch:
        raise ConfigError(
            f"{catalogue.folder / 'datasets.yaml'}: datasets.{slice.dataset}.tokens: "
            f"{tokens} is less than one batch of {batch} tokens (run {slice.run})"
        )
    if training.seq_len > slice.model.max_positions:
        raise ConfigError(
            f"{place}: seq_len {training.seq_len} is longer than max_positions "
            f"{slice.model.max_positions}"
        )


def check_extension(catalogue: Catalogue, child: RunSlice, parent: RunSlice) -> None:
    """Check that the model and the token ids of a run are those of the run that it continues.

    Raises:
        ConfigError: They are not.
    """
    place = f"{catalogue.runs_place}.{child.run}.init_from"
    require_same_model(child.model, parent.model, place, parent.run)
    owner = catalogue.tokenizer_owner(parent.dataset)
    ours, theirs = (catalogue.dataset(one.dataset) for one in (child, parent))
    shared = catalogue.tokenizer_owner(child.dataset) == owner and ours.generated is None
    if not shared and not same_token_ids(ours, theirs):
        raise ConfigError(
            f"{place}: dataset {child.dataset} has other token ids than {parent.dataset} of "
            f"run {parent.run}: give it `base: {owner}`, or use a dataset that has it as base"
        )
