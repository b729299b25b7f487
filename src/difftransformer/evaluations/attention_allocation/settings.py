"""Settings, metric names and files of the evaluation of attention allocation."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.evaluation.retrieval.settings import NOISE, REGIONS, OneNeedleSuite
from difftransformer.models.config import layer_metric

ROWS, MAPS, PROMPT = "example_rows.npy", "example_maps.safetensors", "example.json"
"""Files in the details of a result, for one example prompt: attention weights of its last token,
full attention maps, and tokens."""

MAX_MAP_TOKENS = 256
"""Maximum tokens of an example prompt whose full attention maps are saved for the report."""


def share_name(
    region: str, depth: int | None = None, *, layer: int | None = None, signed: bool = False
) -> str:
    """Return the name of the metric for a region's share of attention.

    Args:
        region: A region of REGIONS, or NOISE.
        depth: Depth of the answer needle in percent; None: mean over depths.
        layer: Layer, from 0; None: mean over layers.
        signed: Whether shares are of signed instead of absolute weights.
    """
    name = region + "_signed" * signed + ("" if depth is None else f"_d{depth}")
    return name if layer is None else layer_metric(name, layer)


def share_names(
    depths: Sequence[int], layers: int
) -> dict[tuple[bool, int | None, int | None], list[str]]:
    """Return the names of all share metrics by (signed, depth, layer).

    Each list has the names for the regions in REGIONS, then for NOISE.
    """
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
    """Suite of attention shares: where the last token of a needle prompt attends.

    The last token is the position that generates the answer. The shares of the first token, the
    context before and after the answer needle, the answer needle and the question are averaged
    over prompts, layers and heads. One of the needles is queried.
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
    """Report options of attention allocation; a section has none."""

    browsed: ClassVar[bool] = True
    claim_columns: ClassVar[tuple[str, ...]] = (
        "answer", "answer_signed", "noise", "noise_signed",
    )  # fmt: skip
