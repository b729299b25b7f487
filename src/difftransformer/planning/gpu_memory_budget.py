"""Check of GPU memory during planning: trainings that do not fit fail before the first job."""

from difftransformer.config.run import RunConfig
from difftransformer.config.scale import MachineConfig
from difftransformer.errors import ConfigError
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import count_parameters
from difftransformer.training.memory import estimate_memory

_GIB = 2**30
_HOST_MB = 16_000
"""Host memory in MB that Snakemake profiles request per job; half is for process and data."""


def host_mb(model: ModelConfig) -> int:
    """Return the host memory in MB that a training job requests.

    A checkpoint (weights and two moments in float32) is copied to host memory before it is
    written. At the end one process holds the full model, and twice as much while writing it.
    """
    return max(_HOST_MB, _HOST_MB // 2 + round(24e-6 * count_parameters(model)))


def require_gpu_memory(run_config: RunConfig, machine: MachineConfig, location: str) -> None:
    """Check that a training fits into the memory of a machine's GPU, by estimate.

    Raises:
        ConfigError: The training does not fit; the message says which settings to change.
    """
    config, budget = run_config.training, machine.memory_gib * _GIB
    estimate = estimate_memory(run_config, "cuda")
    if config.device == "cpu" or estimate.peak <= budget:
        return
    cures = [f"raise training.world_size ({config.world_size})"] if run_config.adapt is None else []
    if estimate.states <= budget or not cures:
        checkpointing = ["set training.activation_checkpointing to layer"] * (
            config.activation_checkpointing != "layer"
        )
        lower = (
            f"lower training.micro_batch_size ({config.micro_batch}), training.seq_len "
            f"({config.seq_len}) or training.loss_chunk ({config.loss_chunk})"
        )
        cures = [*checkpointing, lower, *cures]
    raise ConfigError(
        f"{location}: run {run_config.run} needs {estimate.peak / _GIB:.0f} GiB on each of its "
        f"{config.world_size} GPUs, a {machine.gpu} has {machine.memory_gib:g}: "
        f"{'; or '.join(cures)}"
    )
