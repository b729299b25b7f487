"""What the decoding job times: every row with the sizes that the scale gives for it."""

from collections.abc import Sequence

from difftransformer.config.decoding import DecodingSlice
from difftransformer.config.resolve import Catalogue
from difftransformer.models.matching import match_ffn
from difftransformer.planning.timed_models import timed_model


def decoding_slice(catalogue: Catalogue, rows: Sequence[str]) -> DecodingSlice:
    """Resolve the models of all rows; those with a `match` keep the parameters of the first row.

    Raises:
        ConfigError: Sizes that the model of a row cannot have.
    """
    config = catalogue.scale.decoding
    assert config is not None, catalogue.scale_file
    longest = max(config.contexts) + config.new_tokens
    models = {row: timed_model(catalogue, row, config.model, longest, "decoding") for row in rows}
    first = models[rows[0]]
    for row, model in models.items():
        entry = catalogue.match(row)
        if entry is not None:
            found = match_ffn(model, first, "parameters", entry.multiple_of, 1)
            models[row] = model.model_copy(update={"ffn_dim": found.ffn_dim})
    return DecodingSlice(scale=catalogue.project.scale, config=config, models=models)
