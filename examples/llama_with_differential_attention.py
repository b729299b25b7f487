"""Another attention in a Llama of transformers: everything else of the model stays as it is.

    python examples/llama_with_differential_attention.py

The model is small and untrained: give `swap_attention` any `LlamaForCausalLM`. What the new layers
start with is random, so a trained model has to be trained on (for a start from trained weights see
Dex, docs/dex.md).
"""

from typing import Any

import torch
from difftransformer import AttentionLayer, DifferentialAttention
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM


class LlamaAttention(nn.Module):
    """One of our layers where Llama's decoder layer expects its own."""

    def __init__(self, layer: AttentionLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        cos, sin = position_embeddings  # [B, T, d]; ours has the first half of sin negated
        first, second = sin.chunk(2, dim=-1)
        rope = cos.float(), torch.cat((-first, second), dim=-1).float()
        out = self.layer(hidden_states, rope, attention_mask, past_key_values)
        return out, None


def swap_attention(
    model: LlamaForCausalLM, kind: type[AttentionLayer] = DifferentialAttention, **settings: Any
) -> LlamaForCausalLM:
    """Replace the attention of every layer, at the same width of a query and of the model."""
    config = model.config
    model.set_attn_implementation("sdpa")  # whose masks are True where a query may look
    for index, layer in enumerate(model.model.layers):
        attention = kind(
            config.hidden_size, head_dim=config.head_dim, layer_index=index, **settings
        )
        layer.self_attn = LlamaAttention(attention.to(model.device, model.dtype))
    return model


def main(new_tokens: int = 12) -> list[int]:
    """Swap, take a training step, generate with transformers' own cache; returns the ids."""
    torch.manual_seed(0)
    small = LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=8, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = swap_attention(LlamaForCausalLM(small))
    print(model.model.layers[0].self_attn)
    tokens = torch.randint(100, (2, 16))
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    print(f"loss {loss:.3f}")
    padded = tokens.clone()
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0  # the second prompt is shorter
    written = model.eval().generate(
        padded, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
    )
    print(written[0].tolist())
    return written[0].tolist()


if __name__ == "__main__":
    main()
