"""Inputs and labels alone, where segments, positions and weights are not asked for.

The same kernel as gather.py, which then writes 16 bytes a slot and not 28. A row is one
segment. Its labels are -100 only where they are padding, or, if padding is a token like
any other, nowhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from tokenreel import native
from tokenreel.errors import VocabularyError
from tokenreel.feed.gather import empty_rows, gather_reference
from tokenreel.feed.memory import Memory
from tokenreel.feed.tokens import FEW_SHARDS, tokens_of
from tokenreel.rows.pieces import Pieces
from tokenreel.store.split import Split


class IdRows:
    """Makes rows of a split, [rows, T] int64, in memory that is used again when it is free."""

    def __init__(self, split: Split, seq_len: int) -> None:
        self.split, self.seq_len = split, seq_len
        self._memory = Memory()
        self._shards: tuple[np.ndarray, ...] | None = None
        self._padding: tuple[int, np.ndarray] = (-1, np.empty(0))

    def gather(self, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels; what is left of a row is 0 and -100."""
        shards, buffer, pieces = self._tokens(pieces)
        columns = (pieces.row_offsets, buffer, pieces.start, pieces.length, pieces.first)
        return self._gather(shards, columns)

    def gather_padded(self, pieces: Pieces, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels of rows of one piece each; what is left is `pad_id` in both."""
        shards, buffer, pieces = self._tokens(pieces)
        if self._padding[0] != pad_id:
            self._padding = pad_id, self._pad_shard(pad_id, shards[0].dtype)
        # Padding is a second piece of each row, of a shard that holds nothing else.
        offsets, ends, first = _with_padding(pieces.num_rows, len(shards), self.seq_len + 1)
        table = ends.copy()
        tokens, padding = table[:, :, 0], table[2, :, 1]
        tokens[0], tokens[1], tokens[2] = buffer, pieces.start, pieces.length
        padding -= pieces.length
        columns = (offsets, *table.reshape(3, -1), first)
        return self._gather((*shards, self._padding[1]), columns)

    def _pad_shard(self, pad_id: int, dtype: np.dtype) -> np.ndarray:
        most = np.iinfo(dtype).max
        if pad_id > most:
            raise VocabularyError(
                "the id to pad with does not fit the token dtype",
                where=self.split.shards[0].token_file.path,
                expected=f"0 to {most:,} ({dtype.name})",
                actual=pad_id,
            )
        return np.full(self.seq_len + 1, pad_id, dtype)

    def _tokens(self, pieces: Pieces) -> tuple[tuple[np.ndarray, ...], np.ndarray, Pieces]:
        if self._shards is not None:
            return self._shards, pieces.shard, pieces
        found = tokens_of(self.split, pieces)
        mapped = self.split.shards[0].mode == "mmap"
        if mapped and len(self.split.shards) <= FEW_SHARDS:  # then these are all, once for all
            self._shards = found[0]
        return found

    def _gather(
        self, shards: tuple[np.ndarray, ...], columns: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gather rows; the columns are row offsets, buffer, start, length and first of pieces."""
        offsets, buffer, start, length, first = columns
        rows = len(offsets) - 1
        inputs, labels = self._memory.array((2, rows, self.seq_len), np.int64)
        target = _all_rows(rows)
        extension = native.extension()
        if extension is None:
            nothing = np.full(len(start), -1)
            named = {"row_offsets": offsets, "start": start, "length": length, "first": first}
            pieces = Pieces(shard=buffer, document=nothing, **named)
            whole = replace(empty_rows(rows, self.seq_len), input_ids=inputs, labels=labels)
            gather_reference(
                shards, pieces, whole, out_row=target, buffer=buffer, spans=None, pad_id=0
            )
            return inputs, labels
        kind = shards[0].dtype.str[1:]
        nothing_else = (None,) * 7  # no segments, positions, weights; every token weighs 1
        extension.gather(
            shards, kind, self.seq_len, 0, offsets, target, buffer, start, length, first,
            inputs, labels, *nothing_else,
        )  # fmt: skip
        return inputs, labels


@lru_cache(maxsize=8)
def _all_rows(count: int) -> np.ndarray:
    return _shared(np.arange(count))


@lru_cache(maxsize=8)
def _with_padding(
    rows: int, shard: int, num_slots: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what does not depend on which rows they are, of two pieces each.

    Row offsets; shard, start and length, [3, rows, 2], of padding that fills a row; first.
    """
    pieces = np.zeros((3, rows, 2), np.int64)
    pieces[0, :, 1], pieces[2, :, 1] = shard, num_slots
    return (
        _shared(np.arange(0, 2 * rows + 1, 2)),
        _shared(pieces),
        _shared(np.tile([True, False], rows)),
    )


def _shared(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
