"""Rows from pieces of shards: cast, shift, mask, segment, number, pad, in one pass.

The stream of a row is its pieces end to end, at most T + 1 tokens. Inputs are its
first T tokens, labels its last T. A label is -100 where its token begins a segment,
weighs 0, or is padding, which is known by position and never by value. The kernel
(native/feed.c) releases the GIL; the numpy reference says what it does.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    out: Gathered,
    *,
    out_row: np.ndarray,
    buffer: np.ndarray,
    spans: Spans | None,
    pad_id: int,
) -> None:
    """Fill the rows `out_row` of `out`; `buffer` says which of `shards` each piece is in.

    `spans` None: every token weighs 1.
    """
    extension = native.extension()
    if extension is None:
        gather_reference(
            shards, pieces, out, out_row=out_row, buffer=buffer, spans=spans, pad_id=pad_id
        )
        return
    dtype = shards[0].dtype
    extension.gather(
        shards,
        f"{dtype.kind}{dtype.itemsize}",
        out.input_ids.shape[1],
        pad_id,
        _contiguous(pieces.row_offsets),
        _contiguous(out_row),
        _contiguous(buffer),
        _contiguous(pieces.start),
        _contiguous(pieces.length),
        np.ascontiguousarray(pieces.first),
        out.input_ids,
        out.labels,
        out.segment_ids,
        out.position_ids,
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
    out: Gathered,
    *,
    out_row: np.ndarray,
    buffer: np.ndarray,
    spans: Spans | None,
    pad_id: int,
) -> None:
    """Do the same row by row, stream first, then shift."""
    seq_len = out.input_ids.shape[1]
    for row, target in enumerate(out_row.tolist()):
        tokens = np.full(seq_len + 1, pad_id, np.int64)
        segments, positions = np.zeros(seq_len + 1, np.int32), np.zeros(seq_len + 1, np.int32)
        weights = np.zeros(seq_len + 1, np.float32)
        at, segment, position = 0, 0, 0
        for p in range(pieces.row_offsets[row], pieces.row_offsets[row + 1]):
            length = int(pieces.length[p])
            here = slice(at, at + length)
            if pieces.first[p]:
                segment, position = segment + 1, 0
            start = int(pieces.start[p])
            tokens[here] = shards[buffer[p]][start : start + length]
            segments[here] = segment
            positions[here] = position + np.arange(length)
            weights[here] = _piece_weights(p, length, spans)
            if pieces.first[p] and length:
                weights[at] = 0
            at, position = at + length, position + length
        out.input_ids[target] = tokens[:-1]
        out.segment_ids[target] = segments[:-1]
        out.position_ids[target] = positions[:-1]
        out.loss_weights[target] = weights[1:]
        out.labels[target] = np.where(weights[1:] > 0, tokens[1:], IGNORED)


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
