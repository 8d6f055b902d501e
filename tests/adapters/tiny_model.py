"""A transformer of two layers, whose attention is given from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tokenreel.torch import sdpa_mask

WIDTH, HEADS = 32, 2
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend to everything before: what a document alone needs."""
    return scaled_dot_product_attention(query, key, value, is_causal=True)


class TinyModel(nn.Module):
    """Token ids and positions to logits."""

    def __init__(self, vocab: int, length: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(vocab, WIDTH)
        self.positions = nn.Embedding(length, WIDTH)
        self.mix = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, vocab)
        self.to(dtype)

    def forward(self, input_ids: Tensor, position_ids: Tensor, attend: Attention) -> Tensor:
        """Return logits [B, T, vocab]."""
        rows, length = input_ids.shape
        hidden = self.tokens(input_ids) + self.positions(position_ids)
        for mix, out in zip(self.mix, self.out, strict=True):
            mixed = mix(hidden).reshape(rows, length, 3, HEADS, WIDTH // HEADS)
            query, key, value = mixed.permute(2, 0, 3, 1, 4)
            seen = attend(query, key, value).transpose(1, 2).reshape(rows, length, WIDTH)
            hidden = hidden + torch.tanh(out(seen))
        logits: Tensor = self.head(hidden)
        return logits


def segmented(model: TinyModel, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the logits of a packed batch [B, T]; its segments do not see each other."""
    mask = sdpa_mask(batch["segment_ids"])
    attend = partial(scaled_dot_product_attention, attn_mask=mask)
    logits: Tensor = model(batch["input_ids"], batch["position_ids"], attend)
    return logits
