"""What all plain rows have in common: one segment, positions in order, every token weighs 1."""

from __future__ import annotations

from typing import Any

import numpy as np


class CommonFields:
    """Segments, positions and weights as views of one row: no memory, read-only."""

    def __init__(self, seq_len: int) -> None:
        self._row = {
            "segment_ids": np.ones(seq_len, np.int32),
            "position_ids": np.arange(seq_len, dtype=np.int32),
            "loss_weights": np.ones(seq_len, np.float32),
            "made_mask": np.ones(seq_len, bool),
        }
        self._views: dict[tuple[tuple[int, ...], bool], dict[str, Any]] = {}

    def of_shape(self, shape: tuple[int, ...], *, masked: bool = False) -> dict[str, Any]:
        """Return what a Batch of this shape is made with: its shared fields, and their names.

        They are segments, positions, weights and, if wanted, the mask.
        """
        made = self._views.get((shape, masked))
        if made is None:
            views = {name: np.broadcast_to(row, shape) for name, row in self._row.items()}
            if not masked:
                del views["made_mask"]
            names = ("attention_mask" if name == "made_mask" else name for name in views)
            made = self._views[shape, masked] = {**views, "shared": frozenset(names)}
        return made
