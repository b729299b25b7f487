"""A small Motif from its equations, one head at a time, with the parameter names of its weights.

It can stand beside weights as the code that comes with them.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutput


class MotifConfig(PretrainedConfig):
    model_type = "motif"

    def __init__(self, **settings: Any) -> None:
        self.vocab_size = settings.pop("vocab_size", 48)
        self.hidden_size = settings.pop("hidden_size", 24)
        self.num_hidden_layers = settings.pop("num_hidden_layers", 2)
        self.num_attention_heads = settings.pop("num_attention_heads", 8)
        self.num_key_value_heads = settings.pop("num_key_value_heads", 4)
        self.head_dim = settings.pop("head_dim", 6)
        self.num_noise_heads = settings.pop("num_noise_heads", None)
        self.max_position_embeddings = settings.pop("max_position_embeddings", 64)
        self.takes_position_embeddings = settings.pop("takes_position_embeddings", True)
        super().__init__(**({"tie_word_embeddings": False} | settings))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[T, d]: dimension i with i + d / 2, by the angles of the first half."""
    half = x.shape[-1] // 2
    a, b, c, s = x[:, :half], x[:, half:], cos[:, :half], sin[:, :half]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1)


class Rotary(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        rates = 1e4 ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        angles = position_ids[..., None].double() * rates
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


class Norm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class MotifAttention(nn.Module):
    """Keeps its maps as `first` and `second` [B, H, T, T], and `factor`."""

    def __init__(self, config: MotifConfig, layer: int) -> None:
        super().__init__()
        self.config, d = config, config.head_dim
        self.noise = config.num_noise_heads or config.num_attention_heads // 2
        self.signal = config.num_attention_heads - self.noise
        self.q_proj = nn.Linear(config.hidden_size, config.num_attention_heads * d, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * d, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * d, bias=False)
        self.o_proj = nn.Linear(2 * self.signal * d, config.hidden_size, bias=False)
        for name in ("q1", "k1", "q2", "k2"):
            self.register_parameter(f"lambda_{name}", nn.Parameter(torch.empty(d)))
        self.subln = Norm(2 * d)
        self.rotary_emb = Rotary(d)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * (layer - 1))

    def forward(
        self,
        hidden_states: Tensor,
        position_ids: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, None]:
        d, x = self.config.head_dim, hidden_states
        cos, sin = position_embeddings or self.rotary_emb(x, position_ids)
        first, second, out = [], [], []
        lam = (self.lambda_q1 @ self.lambda_k1).exp() - (self.lambda_q2 @ self.lambda_k2).exp()
        self.factor = lam + self.lambda_init
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()

        def head(projection: nn.Linear, index: int, b: int) -> Tensor:
            return x[b] @ projection.weight[index * d : (index + 1) * d].T

        def softmax(query: int, key: int, b: int) -> Tensor:
            q, k = (
                turned(head(part, index, b), cos[b], sin[b])
                for part, index in ((self.q_proj, query), (self.k_proj, key))
            )
            return (q @ k.T / d**0.5).masked_fill(future, -math.inf).softmax(-1)

        ratio, to_a_pair = (
            self.signal // self.noise,
            self.signal // (self.config.num_key_value_heads // 2),
        )
        for b in range(len(x)):
            for h in range(self.signal):
                group, pair = h // ratio, h // to_a_pair
                start = group * (ratio + 1)
                first.append(softmax(start + h % ratio, 2 * pair, b))
                second.append(softmax(start + ratio, 2 * pair + 1, b))
                value = torch.cat([head(self.v_proj, 2 * pair + i, b) for i in (0, 1)], dim=-1)
                o = (first[-1] - self.factor * second[-1]) @ value
                out.append((1 - self.lambda_init) * self.subln(o))
        shape = len(x), self.signal, x.shape[1], -1
        self.first, self.second = (torch.stack(maps).view(shape) for maps in (first, second))
        return self.o_proj(torch.stack(out).view(shape).transpose(1, 2).flatten(2)), None


class MotifLayer(nn.Module):
    def __init__(self, config: MotifConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = MotifAttention(config, layer)
        self.input_layernorm = Norm(config.hidden_size)


class MotifModel(PreTrainedModel):
    config_class = MotifConfig

    def __init__(self, config: MotifConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        layers = [MotifLayer(config, layer) for layer in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.rotary_emb = Rotary(config.head_dim)
        self.norm = Norm(config.hidden_size)
        self.post_init()

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> BaseModelOutputWithPast:
        x = self.embed_tokens(input_ids)
        positions = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
        position_embeddings = (
            self.rotary_emb(x, positions) if self.config.takes_position_embeddings else None
        )
        for layer in self.layers:
            actual, _ = layer.self_attn(
                hidden_states=layer.input_layernorm(x),
                position_ids=positions,
                position_embeddings=position_embeddings,
            )
            x = x + actual
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x))


class MotifForCausalLM(PreTrainedModel):
    config_class = MotifConfig
    base_model_prefix = "model"

    def __init__(self, config: MotifConfig) -> None:
        super().__init__(config)
        self.model = MotifModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> CausalLMOutput:
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids).last_hidden_state))
