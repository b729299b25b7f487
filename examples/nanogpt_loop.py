"""Differential attention in a small GPT of your own: a model, a loop, and what it wrote.

    python examples/nanogpt_loop.py [TEXT_FILE]

Everything but the attention is plain PyTorch in nanoGPT's manner. Characters are the tokens.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from difftransformer import DifferentialAttention, KeyValueCache
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 2, 64


class Block(nn.Module):
    def __init__(self, layer_index: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        # Half as many heads as a Transformer has at this head_dim: each puts out 2 head_dim.
        self.attention = DifferentialAttention(WIDTH, num_heads=HEADS, layer_index=layer_index)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cache=cache)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Positions are the attention's own (rotary), so there is no position embedding."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, WIDTH)
        self.blocks = nn.ModuleList(Block(index) for index in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab_size, bias=False)

    def forward(self, tokens: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cache)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, tokens: Tensor, new: int) -> Tensor:
        """The likeliest token, ``new`` times; keys and values of earlier positions are kept."""
        cache = KeyValueCache(tokens.shape[1] + new)
        fresh = tokens
        for _ in range(new):
            fresh = self(fresh, cache)[:, -1:].argmax(-1)
            tokens = torch.cat((tokens, fresh), dim=1)
        return tokens


def main(text: str, steps: int = 200, batch: int = 16) -> list[float]:
    """Train and print; returns the losses."""
    torch.manual_seed(0)
    characters = sorted(set(text))
    ids = {character: number for number, character in enumerate(characters)}
    data = torch.tensor([ids[character] for character in text])
    model = GPT(len(characters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        starts = torch.randint(len(data) - CONTEXT - 1, (batch,))
        windows = torch.stack([data[start : start + CONTEXT + 1] for start in starts])
        loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print(f"step {step}: loss {loss:.3f}")
    written = model.generate(data[None, :8], new=40)
    print("".join(characters[number] for number in written[0]))
    return losses


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__)
    main(file.read_text(encoding="utf-8"))
