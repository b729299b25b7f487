"""Report options of the hyperparameters table."""

from typing import ClassVar

from difftransformer.config.evaluation import Fact
from difftransformer.config.evaluation import Options as BaseOptions
from difftransformer.config.run import RunConfig


class Options(BaseOptions):
    """Report options of the hyperparameters table, which needs no measurement and no training."""

    suites: ClassVar[int] = 0
    trained: ClassVar[bool] = False

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Return a run's settings by column id (columns of the DIFF paper, tables 9 and 10)."""
        model, training = run.model, run.training
        return {
            "layers": model.num_layers,
            "d_model": model.d_model,
            "ffn_dim": model.ffn_dim,
            "vocab_size": model.vocab_size,
            "heads": model.attention.output_heads,
            "head_dim": model.attention.head_dim,
            "rope_theta": model.rope_theta,
            "beta1": training.betas[0],
            "beta2": training.betas[1],
            "lr": training.lr,
            "min_lr": training.lr * training.min_lr_ratio,
            "decay": training.decay,
            "warmup_steps": training.warmup_steps,
            "weight_decay": training.weight_decay,
            "seq_len": training.seq_len,
            "batch_tokens": training.tokens_per_step,
            "tokens": training.tokens_per_step * training.total_steps,
        }
