"""Whole batches of contract 003: many samples in one call of the gather kernel."""

from __future__ import annotations

import numpy as np

from tokenreel.dropin.vocabulary import check_ids
from tokenreel.feed.gather import IGNORED
from tokenreel.feed.ids import IdRows
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.slices import Slices, one_piece_each
from tokenreel.store.split import Split


class SliceBatches:
    """Makes batches of slices; with an `eos_id`, marks documents in them."""

    def __init__(self, slices: Slices, *, eos_id: int | None, vocab_size: int | None) -> None:
        self._slices, self._eos_id, self._vocab_size = slices, eos_id, vocab_size
        kinds = sorted({shard.token_file.dtype.str for shard in slices.split.shards})
        self._rows = [_Rows(slices, kind) for kind in kinds]

    def __call__(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return input_ids, labels and, with documents, doc_ids, int64 [B, S - 1]."""
        inputs, labels = self._gather(self._slices.pieces(indices))
        if self._vocab_size is not None:
            where = self._slices.split.shards[0].token_file.path.parent
            check_ids(inputs, self._vocab_size, where=where)
            check_ids(labels[:, -1], self._vocab_size, where=where)
        if self._eos_id is None:
            return {"input_ids": inputs, "labels": labels}
        doc_ids = mark_documents(inputs, labels, eos_id=self._eos_id)
        return {"input_ids": inputs, "labels": labels, "doc_ids": doc_ids}

    def _gather(self, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
        if len(self._rows) == 1:
            return self._rows[0].ids.gather(pieces)
        # The kernel takes shards of one dtype: a call for each dtype, put back where they belong.
        both = np.empty((2, pieces.num_rows, self._slices.num_slots - 1), np.int64)
        for rows in self._rows:
            number_there = rows.numbers[pieces.shard]  # -1: the row is of another dtype
            mine = np.flatnonzero(number_there >= 0)
            if len(mine):
                same = one_piece_each(len(mine), self._slices.num_slots)
                part = Pieces(shard=number_there[mine], start=pieces.start[mine], **same)
                both[:, mine] = rows.ids.gather(part)
        return both[0], both[1]


class _Rows:
    """The rows of all shards of one dtype; `numbers` [shards] says which of them a shard is."""

    def __init__(self, slices: Slices, kind: str) -> None:
        is_mine = [shard.token_file.dtype.str == kind for shard in slices.split.shards]
        self.numbers = np.where(is_mine, np.cumsum(is_mine) - 1, -1)
        mine = [shard for shard, yes in zip(slices.split.shards, is_mine, strict=True) if yes]
        self.ids = IdRows(Split(slices.split.name, mine), slices.num_slots - 1)


def mark_documents(input_ids: np.ndarray, labels: np.ndarray, *, eos_id: int) -> np.ndarray:
    """Ignore the labels that cross documents, in place; return the document of each input.

    All int64 [rows, T], contiguous; documents count from 0 in each row.

    >>> labels = np.array([[20, 0, 30, 40]])
    >>> mark_documents(np.array([[10, 20, 0, 30]]), labels, eos_id=0).tolist(), labels.tolist()
    ([[0, 0, 0, 1]], [[20, 0, -100, 40]])
    """
    rows, width = input_ids.shape
    ends = np.flatnonzero(input_ids == eos_id)
    labels.reshape(-1)[ends] = IGNORED
    # A document begins with a row and behind each end; ends are few, so documents are
    # numbered one by one and then spread over their tokens.
    row_starts = np.arange(0, rows * width, width)
    behind = ends + 1
    begins = np.concatenate((row_starts, behind[behind % width != 0], [rows * width]))
    begins.sort()
    numbers = np.arange(len(begins) - 1)
    numbers -= np.searchsorted(begins, row_starts)[begins[:-1] // width]
    lengths = begins[1:] - begins[:-1]
    doc_ids: np.ndarray = np.repeat(numbers, lengths).reshape(rows, width)
    return doc_ids
