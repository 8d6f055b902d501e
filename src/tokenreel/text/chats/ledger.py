"""The account of every token of every chat: trained + masked + truncated + dropped = total.

One row per chat that came in, whatever became of it. Each step that removes
tokens moves them from one column to another, so the sum never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.text.turns import trained_lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Token counts per chat, int64 [chats]; `total` is what rendering produced."""

    trained: np.ndarray
    masked: np.ndarray
    truncated: np.ndarray
    dropped: np.ndarray
    total: np.ndarray

    def totals(self) -> dict[str, int]:
        """Return the sums over all chats, ready for JSON."""
        columns = {name: int(getattr(self, name).sum()) for name in self.__slots__}
        return {**columns, "chats": len(self.total), "chats_dropped": int((self.dropped > 0).sum())}


def trained_per_chat(turns: np.ndarray, turn_offsets: np.ndarray) -> np.ndarray:
    """Return how many tokens of each chat have a weight above 0, int64 [chats]."""
    sums = np.concatenate(([0], np.cumsum(trained_lengths(turns))))
    return sums[turn_offsets[1:]] - sums[turn_offsets[:-1]]


def open_ledger(turns: np.ndarray, *, offsets: np.ndarray, turn_offsets: np.ndarray) -> Ledger:
    """Return the ledger of chats as they were rendered: nothing truncated, nothing dropped."""
    total = np.diff(offsets)
    trained = trained_per_chat(turns, turn_offsets)
    nothing = np.zeros_like(total)
    return Ledger(
        trained=trained,
        masked=total - trained,
        truncated=nothing,
        dropped=nothing,
        total=total,
    )
