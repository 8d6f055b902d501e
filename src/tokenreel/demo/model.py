"""A transformer small enough to train on a laptop's processor while you watch.

Two layers of 64, a quarter of a million weights with a vocabulary of 2,000. It takes what a
batch of tokenreel.torch holds; documents in one row do not see each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from tokenreel.torch import sdpa_mask

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # query, key, value, each [B, heads, T, width]


class Layer(nn.Module):
    """Attention and a feed-forward part, each added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        """Return [B, T, width]."""
        rows, length, width = hidden.shape
        mixed = self.mix(self.norms[0](hidden)).reshape(rows, length, 3, self.heads, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = attend(query, key, value)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        further: Tensor = hidden + self.down(gelu(self.up(self.norms[1](hidden))))
        return further


class TinyTransformer(nn.Module):
    """From a batch to logits; the same seed gives the same weights.

    >>> model = TinyTransformer(vocab_size=50, seq_len=8)
    >>> ones = torch.ones(2, 8, dtype=torch.long)
    >>> batch = {"input_ids": ones, "segment_ids": ones, "position_ids": ones}
    >>> tuple(model(batch).shape)
    (2, 8, 50)
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        seq_len: int,
        width: int = 64,
        heads: int = 2,
        layers: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(seq_len, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, batch: Mapping[str, Tensor], attend: Attend | None = None) -> Tensor:
        """Return logits [B, T, vocabulary]."""
        attend = attend or within_segments(batch["segment_ids"])
        hidden = self.tokens(batch["input_ids"]) + self.positions(batch["position_ids"])
        for layer in self.layers:
            hidden = layer(hidden, attend)
        logits: Tensor = self.norm(hidden) @ self.tokens.weight.T
        return logits


def within_segments(segment_ids: Tensor) -> Attend:
    """Return attention in which a token sees its own document, up to itself."""
    mask = sdpa_mask(segment_ids)
    return lambda query, key, value: scaled_dot_product_attention(query, key, value, attn_mask=mask)
