"""Rows from pieces of shards: cast, shift, mask, segment, number, pad, in one pass.

The stream of a row is its pieces end to end, at most T + 1 tokens. Inputs are its
first T tokens, labels its last T. A label is -100 where its token begins a segment,
weighs 0, or is padding, which is known by position and never by value. Where nobody asks
for segments and positions (GatheredIds), a slot is 16 bytes and not 28. The kernel
(native/feed.c) releases the GIL; the numpy reference says what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokenreel import native
from tokenreel.rows.pieces import Pieces

IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """What weighs in each piece: piece p has spans offsets[p] to offsets[p + 1].

    start, stop: int64, tokens counted from the piece's first; weight: float32. Spans of
    a piece are in order and do not overlap; what lies in none weighs 0.
    """

    offsets: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    weight: np.ndarray


class GatheredIds(NamedTuple):  # made for every batch: cheaper than a frozen dataclass
    """Inputs and labels of some rows, [rows, T] int64; weights, float32, if they are asked for."""

    input_ids: np.ndarray
    labels: np.ndarray
    loss_weights: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The arrays of some rows, [rows, T]: ids int64, segments and positions int32."""

    input_ids: np.ndarray
    labels: np.ndarray
    segment_ids: np.ndarray
    position_ids: np.ndarray
    loss_weights: np.ndarray

    def fill_padding(self, numbers: np.ndarray, *, pad_id: int) -> None:
        """Make rows with these numbers all padding: no segment, nothing to train."""
        self.input_ids[numbers], self.labels[numbers] = pad_id, IGNORED
        self.segment_ids[numbers], self.position_ids[numbers] = 0, 0
        self.loss_weights[numbers] = 0

    def move_right(self, numbers: np.ndarray, lead: np.ndarray) -> None:
        """Move the rows with these numbers by `lead` slots each, into their padding."""
        # Runs of rows side by side that move equally far, as repeats of a prompt do.
        borders = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(lead) != 0)) + 1
        arrays = (self.input_ids, self.labels, self.segment_ids, self.position_ids)
        for run in np.split(np.arange(len(numbers)), borders):
            count = int(lead[run[0]])
            rows = slice(int(numbers[run[0]]), int(numbers[run[-1]]) + 1)
            for values in (*arrays, self.loss_weights) if count else ():
                empty = values[rows, -1:].copy()  # the last slot is padding: the row moves
                values[rows, count:] = values[rows, :-count]
                values[rows, :count] = empty


def empty_rows(num_rows: int, seq_len: int) -> Gathered:
    """Return arrays for so many rows, not filled."""
    shape = (num_rows, seq_len)
    return Gathered(
        input_ids=np.empty(shape, np.int64),
        labels=np.empty(shape, np.int64),
        segment_ids=np.empty(shape, np.int32),
        position_ids=np.empty(shape, np.int32),
        loss_weights=np.empty(shape, np.float32),
    )


def gather(
    shards: tuple[np.ndarray, ...],
    pieces: Pieces,
    out: Gathered | GatheredIds,
    *,
    buffer: np.ndarray,
    spans: Spans | None,
    pad_id: int,
    label_pad: int = IGNORED,
    out_row: np.ndarray | None = None,
    stored: tuple[np.ndarray, ...] = (),
) -> None:
    """Fill the rows `out_row` of `out`; `buffer` says which of `shards` each piece is in.

    `out_row` None: the first rows, in their order. `spans` None: every token weighs 1, or what
    `stored` says, which has a uint8 or a float32 for each token of each shard: those come out
    as they are, NaN too, and labels are the tokens whatever they weigh. What is left of a row
    is `pad_id` in inputs and `label_pad` in labels.
    """
    extension = native.extension()
    if extension is None:
        gather_reference(
            shards,
            pieces,
            out,
            buffer=buffer,
            spans=spans,
            pad_id=pad_id,
            label_pad=label_pad,
            out_row=out_row,
            stored=stored,
        )
        return
    dtype = shards[0].dtype
    extension.gather(
        shards,
        f"{dtype.kind}{dtype.itemsize}",
        out.input_ids.shape[1],
        pad_id,
        label_pad,
        stored,
        _contiguous(pieces.row_offsets),
        None if out_row is None else _contiguous(out_row),
        _contiguous(buffer),
        _contiguous(pieces.start),
        _contiguous(pieces.length),
        np.ascontiguousarray(pieces.first),
        out.input_ids,
        out.labels,
        *((out.segment_ids, out.position_ids) if isinstance(out, Gathered) else (None, None)),
        out.loss_weights,
        *(
            (None, None, None, None)
            if spans is None
            else (spans.offsets, spans.start, spans.stop, spans.weight)
        ),
    )


def gather_reference(
    shards: tuple[np.ndarray, ...],
    pieces: Pieces,
    out: Gathered | GatheredIds,
    *,
    buffer: np.ndarray,
    spans: Spans | None,
    pad_id: int,
    label_pad: int = IGNORED,
    out_row: np.ndarray | None = None,
    stored: tuple[np.ndarray, ...] = (),
) -> None:
    """Do the same row by row, stream first, then shift."""
    seq_len = out.input_ids.shape[1]
    for row, target in enumerate(range(pieces.num_rows) if out_row is None else out_row.tolist()):
        tokens = np.full(seq_len + 1, pad_id, np.int64)
        segments, positions = np.zeros(seq_len + 1, np.int32), np.zeros(seq_len + 1, np.int32)
        weights, is_label = np.zeros(seq_len + 1, np.float32), np.zeros(seq_len + 1, bool)
        at, segment, position = 0, 0, 0
        for p in range(pieces.row_offsets[row], pieces.row_offsets[row + 1]):
            start, length = int(pieces.start[p]), int(pieces.length[p])
            here, there = slice(at, at + length), slice(start, start + length)
            if pieces.first[p]:
                segment, position = segment + 1, 0
            tokens[here] = shards[buffer[p]][there]
            segments[here] = segment
            positions[here] = position + np.arange(length)
            weights[here] = stored[buffer[p]][there] if stored else _piece_weights(p, length, spans)
            is_label[here] = True if stored else weights[here] > 0
            if pieces.first[p] and length:
                weights[at], is_label[at] = 0, False
            at, position = at + length, position + length
        out.input_ids[target] = tokens[:-1]
        out.labels[target] = np.where(is_label[1:], tokens[1:], IGNORED)
        out.labels[target, max(at - 1, 0) :] = label_pad
        if out.loss_weights is not None:
            out.loss_weights[target] = weights[1:]
        if isinstance(out, Gathered):
            out.segment_ids[target], out.position_ids[target] = segments[:-1], positions[:-1]


def _piece_weights(piece: int, length: int, spans: Spans | None) -> np.ndarray:
    if spans is None:
        return np.ones(length, np.float32)
    weights = np.zeros(length, np.float32)
    for s in range(spans.offsets[piece], spans.offsets[piece + 1]):
        weights[max(spans.start[s], 0) : max(spans.stop[s], 0)] = (
            spans.weight[s] if spans.weight[s] > 0 else 0
        )
    return weights


def _contiguous(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.int64)
