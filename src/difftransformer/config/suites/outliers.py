"""Settings of the suite of activation outliers."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.config.suites.windows import WindowSuite


class Outliers(WindowSuite):
    """Largest and median absolute activations: attention logits, and outputs of the layers.

    Logits are q'k / sqrt(d) before the softmax, over all pairs that causal attention sees, of both
    maps of a differential head; layer outputs are the residual stream after both halves.
    """

    kind: Literal["outliers"] = setting(meaning="Which measurement the suite is.")
    max_tokens: int | None = setting(
        400_000,
        meaning="Tokens read, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        source="DIFF paper, section 3.7: 0.4M",
        gt=0,
    )
    ranks: list[int] = setting(
        [1, 2, 3, 10, 100],
        meaning="Ranks of the largest values that are reported, exactly.",
        source="DIFF paper, table 5",
        min_length=1,
    )
    backend: Literal["eager"] = setting(
        "eager", meaning="Only the slow implementation has logits to look at."
    )
