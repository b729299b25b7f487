"""The machine that an expensive scale is planned for."""

from difftransformer.config.base import Settings, setting


class MachineConfig(Settings):
    """What a plan reckons with; nothing of it reaches a job."""

    card: str = setting(meaning="Name of the GPU, for people")
    memory_gib: float = setting(meaning="Memory of one GPU", unit="GiB", gt=0)
    peak_tflops: float = setting(
        meaning="Dense products of one GPU in bf16, as its maker states them", unit="TFLOP/s", gt=0
    )
    mfu: float = setting(
        meaning="Share of that peak which training is taken to reach: stated, not measured",
        gt=0,
        le=1,
    )
