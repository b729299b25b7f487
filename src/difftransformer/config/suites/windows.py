"""Settings of suites that read windows of the validation split, one after the other."""

from difftransformer.config.base import setting
from difftransformer.config.suites.base import SuiteSettings


class WindowSuite(SuiteSettings):
    """What is measured on tokens in windows from the start of the validation split."""

    kind: str
    seq_len: int = setting(
        meaning="Positions of a window of the validation split; windows do not overlap.",
        unit="tokens",
        gt=1,
    )
    max_tokens: int | None = setting(
        65_536,
        meaning="Tokens read, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        gt=0,
    )
