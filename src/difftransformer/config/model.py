"""Settings of the model: the decoder's sizes and the part every attention variant shares."""

from typing import Any, Literal

from difftransformer.config.base import Settings, setting

MODEL_TYPE = "difftransformer"
"""What config.json says of a model of ours, by which transformers and we know it."""
LAMBDA = "lambda"
"""What layers multiply the maps by that they subtract: each has a metric of it."""


def layer_metric(name: str, layer: int) -> str:
    """Metric of a layer, by that of the whole model; layers count from 0."""
    return f"{name}_l{layer}"


def lambda_metric(layer: int) -> str:
    """Metric of that in a layer."""
    return layer_metric(LAMBDA, layer)


class AttentionConfig(Settings):
    """What every attention variant has; a variant subclasses this in its own file."""

    variant: str = setting(meaning="Name of the variant in models/attention/registry.py.")
    num_heads: int | None = setting(
        None,
        meaning="Output heads of the layer (for DIFF: differential heads, each with two softmax "
        "maps). Left out: as many as fill d_model.",
        unit="heads",
        source="DIFF paper, section 2.1 (h = d_model / 2d)",
        gt=0,
    )
    num_kv_heads: int | None = setting(
        None,
        meaning="Value heads that the output heads share in groups (GQA); each has one key head "
        "for each softmax map. Left out: one for each output head (MHA).",
        unit="heads",
        source="github microsoft/unilm Diff-Transformer/multihead_flashdiff_1.py",
        gt=0,
    )
    head_dim: int = setting(
        meaning="Query and key dimension d of one softmax map; even, since rotary pairs need it.",
        unit="dimensions",
        source="DIFF paper, section 3.1 (128)",
        gt=0,
        le=2**17,
        multiple_of=2,
    )
    head_dim_multiplier: int = setting(
        1,
        meaning="Factor on head_dim, so that a run can say 'heads twice as wide' at every scale.",
        source="DIFF paper, table 6 (row with 8 heads of 256)",
        gt=0,
    )

    num_heads_multiplier: float = setting(
        1,
        meaning="Factor on the number of output heads alone: key/value heads stay as many, so that "
        "a run can say 'half as many heads again' at every scale.",
        source="Differential Transformer V2 (post), design ablation 4 (1.5h heads)",
        gt=0,
    )
    heads_per_kv_head: int = setting(
        1,
        meaning="Output heads that share a key/value head where num_kv_heads is left out, counted "
        "before num_heads_multiplier.",
        unit="heads",
        gt=0,
    )

    @property
    def value_dim(self) -> int:
        """Dimensions one output head contributes before the output projection."""
        return self.head_dim

    @property
    def output_heads(self) -> int:
        """`num_heads` of a resolved config."""
        assert self.num_heads is not None, "attention config was not resolved by configure()"
        return self.num_heads

    @property
    def kv_heads(self) -> int:
        """`num_kv_heads` of a resolved config."""
        assert self.num_kv_heads is not None, "attention config was not resolved by configure()"
        return self.num_kv_heads


class ModelConfig(Settings):
    """A decoder: pre-RMSNorm, SwiGLU, rotary positions, no biases; attention chosen by name."""

    vocab_size: int = setting(meaning="Number of token ids.", unit="tokens", gt=0, le=2**24)
    d_model: int = setting(
        meaning="Width of the residual stream.",
        unit="dimensions",
        source="DIFF paper, table 10",
        gt=0,
        le=2**17,
    )
    num_layers: int = setting(
        meaning="Number of decoder blocks.",
        unit="layers",
        source="DIFF paper, table 10",
        gt=0,
        le=10_000,
    )
    ffn_dim: int = setting(
        meaning="Inner width of the SwiGLU feed-forward.",
        unit="dimensions",
        source="DIFF paper, section 3.2 (8/3 d_model)",
        gt=0,
        le=2**20,
    )
    attention: dict[str, Any] = setting(
        meaning="Variant and its options, checked by models.attention.registry.configure.",
        holds=AttentionConfig.model_fields,
    )
    max_positions: int = setting(
        meaning="Longest sequence the model accepts.", unit="positions", gt=0, le=2**27
    )
    rope_theta: float = setting(
        10000.0,
        meaning="Base of the rotary frequencies.",
        source="the paper does not state it; 10000 is RoFormer's and the authors' default",
        gt=0,
    )
    norm_eps: float = setting(
        1e-5,
        meaning="Added to the mean square in every RMSNorm.",
        source="github microsoft/unilm Diff-Transformer",
        gt=0,
    )
    residual_in_fp32: bool = setting(
        True,
        meaning="Whether the residual stream is in float32 where products are in bf16, by "
        "`precision`. Without it, it is in bf16, too: half the bytes that norms and sums move. "
        "Adaptations keep it in float32.",
    )
    tie_embeddings: bool = setting(
        False, meaning="Use the embedding matrix as output projection as well."
    )
    initializer: Literal["fan_in", "normal"] = setting(
        "fan_in",
        meaning="fan_in: std = 1/sqrt(inputs of the matrix); normal: std = init_std. In both, "
        "projections into the residual stream are divided by sqrt(2 num_layers).",
        source="the paper states none; fan_in lowered both models' loss (project measurement)",
    )
    init_std: float = setting(
        0.02, meaning="Standard deviation of the `normal` initializer.", source="GPT-2", gt=0
    )
    embedding_std: float = setting(
        1.0,
        meaning="Standard deviation of the token embeddings.",
        source="goes with fan_in; use init_std's value with normal",
        gt=0,
    )
