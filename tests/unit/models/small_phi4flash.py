"""A small Phi-4-mini-flash from its equations, one head at a time, with its weights' names.

What is no attention there is a plain mean over what came before, gated.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutput


class Phi4FlashConfig(PretrainedConfig):
    model_type = "phi4flash"

    def __init__(self, **settings: Any) -> None:
        self.vocab_size = settings.pop("vocab_size", 48)
        self.hidden_size = settings.pop("hidden_size", 32)
        self.num_hidden_layers = settings.pop("num_hidden_layers", 8)
        self.num_attention_heads = settings.pop("num_attention_heads", 8)
        self.num_key_value_heads = settings.pop("num_key_value_heads", 4)
        self.max_position_embeddings = settings.pop("max_position_embeddings", 64)
        self.sliding_window = settings.pop("sliding_window", 5)
        slides = [layer < self.num_hidden_layers // 2 for layer in range(self.num_hidden_layers)]
        kinds = ["sliding_attention" if slides_here else "full_attention" for slides_here in slides]
        self.layer_types = settings.pop("layer_types", kinds)
        super().__init__(**({"tie_word_embeddings": False} | settings))


class Subtraction(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("q1", "k1", "q2", "k2"):
            self.register_parameter(f"lambda_{name}", nn.Parameter(torch.empty(width)))
        self.subln = nn.RMSNorm(2 * width, eps=1e-5)


class SambaYAttention(nn.Module):
    """Keeps its maps as `first` and `second` [B, H, T, T], and `factor`."""

    def __init__(self, config: Phi4FlashConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer
        self.width = config.hidden_size // config.num_attention_heads
        self.crosses = layer >= config.num_hidden_layers // 2 + 2
        slides = config.layer_types[layer] == "sliding_attention"
        self.window = config.sliding_window if slides else math.inf
        keys = 0 if self.crosses else 2 * config.num_key_value_heads
        rows = (config.num_attention_heads + keys) * self.width
        self.Wqkv = nn.Linear(config.hidden_size, rows)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.inner_cross_attn = Subtraction(self.width)

    def forward(self, hidden_states: Tensor, shared: Tensor | None) -> tuple[Tensor, None, Tensor]:
        config, d, inner = self.config, self.width, self.inner_cross_attn
        H, G, T = config.num_attention_heads, config.num_key_value_heads, hidden_states.shape[1]
        numbers = self.Wqkv(hidden_states)
        keys_values = shared if self.crosses else numbers[..., H * d :]
        behind = torch.arange(T)[:, None] - torch.arange(T)
        sees = (behind >= 0) & (behind < self.window)
        init = 0.8 - 0.6 * math.exp(-0.3 * self.layer_idx)
        self.factor = (
            math.exp(inner.lambda_q1 @ inner.lambda_k1)
            - math.exp(inner.lambda_q2 @ inner.lambda_k2)
            + init
        )
        first, second, out = [], [], []
        for b in range(len(numbers)):
            for h in range(H // 2):
                pair, maps = h // (H // G), []
                for i in (0, 1):
                    q = numbers[b, :, (2 * h + i) * d : (2 * h + i + 1) * d]
                    k = keys_values[b, :, (2 * pair + i) * d : (2 * pair + i + 1) * d]
                    maps.append((q @ k.T / d**0.5).masked_fill(~sees, -math.inf).softmax(-1))
                value = keys_values[b, :, (G + 2 * pair) * d : (G + 2 * pair + 2) * d]
                o = (maps[0] - self.factor * maps[1]) @ value
                first.append(maps[0])
                second.append(maps[1])
                out.append((1 - init) * inner.subln(o))
        shape = len(numbers), H // 2, T, -1
        self.first, self.second = (torch.stack(maps).view(shape) for maps in (first, second))
        joined = torch.stack(out).view(shape).transpose(1, 2).flatten(2)
        return self.out_proj(joined), None, keys_values


class Mean(nn.Module):
    def __init__(self, config: Phi4FlashConfig) -> None:
        super().__init__()
        self.in_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        number = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        return self.out_proj(self.in_proj(x).sigmoid() * x.cumsum(1) / number)


class SambaYLayer(nn.Module):
    def __init__(self, config: Phi4FlashConfig, layer: int) -> None:
        super().__init__()
        self.attn = SambaYAttention(config, layer) if layer % 2 else Mean(config)
        self.input_layernorm = nn.LayerNorm(config.hidden_size)


class Phi4FlashModel(PreTrainedModel):
    config_class = Phi4FlashConfig

    def __init__(self, config: Phi4FlashConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        layers = [SambaYLayer(config, layer) for layer in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.final_layernorm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> BaseModelOutputWithPast:
        x, keys_values = self.embed_tokens(input_ids), None
        for layer in self.layers:
            normed = layer.input_layernorm(x)
            if isinstance(layer.attn, Mean):
                x = x + layer.attn(normed)
            else:
                actual, _, keys_values = layer.attn(normed, keys_values)
                x = x + actual
        return BaseModelOutputWithPast(last_hidden_state=self.final_layernorm(x))


class Phi4FlashForCausalLM(PreTrainedModel):
    config_class = Phi4FlashConfig
    base_model_prefix = "model"

    def __init__(self, config: Phi4FlashConfig) -> None:
        super().__init__(config)
        self.model = Phi4FlashModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> CausalLMOutput:
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids).last_hidden_state))
