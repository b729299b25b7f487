"""Settings, metric names and files of the evaluation of attention allocation."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.evaluation.retrieval.settings import NOISE, REGIONS, OneNeedleSuite
from difftransformer.models.config import layer_metric

ROWS, MAPS, PROMPT = "example_rows.npy", "example_maps.safetensors", "example.json"
"""Files beside a result, of an example prompt: rows of the answering position, maps, tokens."""

MAX_MAP_TOKENS = 256
"""Longest example prompt whose maps are saved for the report; those of longer ones are large."""


def share_name(
    region: str, depth: int | None = None, *, layer: int | None = None, signed: bool = False
) -> str:
    """Return the metric of a region's share of attention, or of noise.

    At a depth and in a layer, None for the mean over all; of absolute or of signed weights.
    """
    name = region + "_signed" * signed + ("" if depth is None else f"_d{depth}")
    return name if layer is None else layer_metric(name, layer)


def share_names(
    depths: Sequence[int], layers: int
) -> dict[tuple[bool, int | None, int | None], list[str]]:
    """Return names by (signed, depth, layer), in the order of REGIONS and NOISE."""
    cuts: list[tuple[int | None, int | None]] = [(depth, None) for depth in (None, *depths)]
    cuts += [(None, layer) for layer in range(layers)]
    return {
        (signed, depth, layer): [
            share_name(region, depth, layer=layer, signed=signed) for region in (*REGIONS, NOISE)
        ]
        for signed in (False, True)
        for depth, layer in cuts
    }


class Suite(OneNeedleSuite):
    """Attention of the answering position, the last token of a needle prompt.

    Shares of the first token, the context before and after the answer needle, the answer needle and
    the question, averaged over prompts, layers and heads; one of the needles is queried.
    """

    kind: Literal["attention_allocation"] = setting(meaning="Which evaluation the suite is.")
    needles: int = setting(
        6,
        meaning="Needles N in a prompt; those not queried are context.",
        unit="needles",
        source="the paper does not state N for table 3; 6 is the setting of its figure 1",
        gt=0,
    )


class Options(evaluation.Options):
    """A section has no options."""

    browsed: ClassVar[bool] = True
    claim_columns: ClassVar[tuple[str, ...]] = (
        "answer", "answer_signed", "noise", "noise_signed",
    )  # fmt: skip
