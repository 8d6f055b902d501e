"""Inputs and labels of rows that are one segment each, in memory that is used again.

What the loaders of contracts 000, 002 and 003 show: no segments, no positions, and where
weights are stored, those beside labels that do not depend on them. A batch is one call of
the gather kernel.
"""

from __future__ import annotations

import numpy as np

from tokenreel.errors import VocabularyError
from tokenreel.feed.gather import IGNORED, GatheredIds, gather
from tokenreel.feed.memory import Memory
from tokenreel.feed.tokens import FEW_SHARDS, tokens_of, weights_of
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split

Arrays = tuple[np.ndarray, ...]


class IdRows:
    """Makes rows of a split, [rows, T] int64."""

    def __init__(self, split: Split, seq_len: int) -> None:
        self.split, self.seq_len = split, seq_len
        self._memory = Memory()
        mapped = split.shards[0].mode == "mmap"
        self._stays = mapped and len(split.shards) <= FEW_SHARDS  # what is found once holds always
        self._shards: Arrays | None = None
        self._weights: Arrays | None = None
        self._largest_id = int(np.iinfo(split.shards[0].token_file.dtype).max)

    def gather(self, pieces: Pieces, *, pad_id: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels; what is left of a row is `pad_id` in both, else 0 and -100."""
        out = self._fill(pieces, pad_id, weighed=False)
        return out.input_ids, out.labels

    def gather_weighed(
        self, pieces: Pieces, *, pad_id: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same, and the stored weights of the labels, float32; 0 for padding."""
        out = self._fill(pieces, pad_id, weighed=True)
        assert out.loss_weights is not None  # they were asked for
        return out.input_ids, out.labels, out.loss_weights

    def _fill(self, pieces: Pieces, pad_id: int | None, *, weighed: bool) -> GatheredIds:
        if pad_id is not None and pad_id > self._largest_id:
            file = self.split.shards[0].token_file
            raise VocabularyError(
                "the id to pad with does not fit the token dtype",
                where=file.path,
                expected=f"0 to {self._largest_id:,} ({file.dtype.name})",
                actual=pad_id,
            )
        inputs, labels = self._memory.array((2, pieces.num_rows, self.seq_len), np.int64)
        weights = self._memory.array(inputs.shape, np.float32) if weighed else None
        out = GatheredIds(input_ids=inputs, labels=labels, loss_weights=weights)
        stored = self._stored(pieces) if weighed else ()
        shards, buffer, pieces = self._tokens(pieces)
        gather(
            shards,
            pieces,
            out,
            buffer=buffer,
            spans=None,
            pad_id=pad_id or 0,
            label_pad=IGNORED if pad_id is None else pad_id,
            stored=stored,
        )
        return out

    def _tokens(self, pieces: Pieces) -> tuple[Arrays, np.ndarray, Pieces]:
        if self._shards is not None:
            return self._shards, pieces.shard, pieces
        found = tokens_of(self.split, pieces)
        if self._stays:
            self._shards = found[0]
        return found

    def _stored(self, pieces: Pieces) -> Arrays:
        if self._weights is not None:
            return self._weights
        found = weights_of(self.split, pieces)
        if self._stays:
            self._weights = found
        return found
