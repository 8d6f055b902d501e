"""What a trainer is handed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A rank's rows of one step, [B, T] or, with accumulation, [A, B, T].

    input_ids, labels: int64, labels shifted and -100 where ignored; loss_weights:
    float32, the weight of each label; segment_ids: int32, from 1, 0 is padding;
    position_ids: int32, from 0 in each segment. For the mean over tokens divide a rank's
    loss sum by `feed.weight_sum(step)`, which is of the whole global step.
    """

    step: int
    input_ids: np.ndarray
    labels: np.ndarray
    loss_weights: np.ndarray
    segment_ids: np.ndarray
    position_ids: np.ndarray

    @property
    def loss_mask(self) -> np.ndarray:
        """bool: where the loss counts."""
        return self.loss_weights > 0

    @property
    def attention_mask(self) -> np.ndarray:
        """bool: where there is a token."""
        return self.segment_ids > 0

    def cu_seqlens(self) -> np.ndarray:
        """Return the borders of all segments in the flattened batch, padding included, int32.

        Strictly increasing, from 0 to the number of slots; padding of a row is a segment
        of its own.
        """
        flat = self.segment_ids.reshape(-1, self.segment_ids.shape[-1])
        begins = np.ones(flat.shape, bool)
        begins[:, 1:] = flat[:, 1:] != flat[:, :-1]
        return np.append(np.flatnonzero(begins.reshape(-1)), flat.size).astype(np.int32)
