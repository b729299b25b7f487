"""Settings of the scaling figures: which size counts, how curves are fitted and read."""

from typing import Literal

from difftransformer.config.base import Settings, setting


class ScalingConfig(Settings):
    """How loss by size, or by training tokens, is fitted and compared between rows."""

    parameters: Literal["one_embedding", "non_embedding", "total"] = setting(
        "one_embedding",
        meaning="What the size of a model counts: all but its vocabulary matrices, these and one "
        "of them, or everything. One, so that tying the embeddings changes no size",
        source="arXiv 2410.05258 table 10: the stated sizes count one embedding matrix",
    )
    points: int = setting(
        9,
        meaning="Points of a curve by tokens: the validations nearest to so many equal parts of "
        "the budget",
        source="arXiv 2410.05258 figure 3b",
        ge=2,
    )
    offset_from: int = setting(
        5,
        meaning="Points from which on loss = a * x^-b + c is fitted; fewer fit c = 0. Ours: with c "
        "the fit of the published points gives the ratios that the paper states, without it not",
        unit="points",
        ge=4,
    )
    read_at: float = setting(
        meaning="Where on its curve a row is compared with the other one, as a share of its "
        "largest size or budget",
        gt=0,
        le=1,
    )
    resamples: int = setting(
        2000, meaning="Bootstrap samples of the seeds behind the intervals of fits", gt=0
    )
