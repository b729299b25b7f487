"""Checks of a run that continues another one, before any job starts."""

from difftransformer.config.extension import require_same_model, same_token_ids
from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import RunSlice
from difftransformer.errors import ConfigError


def check_extension(catalogue: Catalogue, child: RunSlice, parent: RunSlice) -> None:
    """Check that the child's model and token ids are its parent's.

    Raises:
        ConfigError: They are not; one line with the place, the key and what is allowed.
    """
    place = f"{catalogue.folder / 'runs.yaml'}: runs.{child.run}.init_from"
    require_same_model(child.model, parent.model, place, parent.run)
    owner = catalogue.tokenizer_owner(parent.dataset)
    ours, theirs = catalogue.dataset(child.dataset), catalogue.dataset(parent.dataset)
    shared = catalogue.tokenizer_owner(child.dataset) == owner and ours.generated is None
    if not shared and not same_token_ids(ours, theirs):
        raise ConfigError(
            f"{place}: dataset {child.dataset} has other token ids than {parent.dataset} of run "
            f"{parent.run}: give it `base: {owner}`, or use a dataset that has it as base"
        )
