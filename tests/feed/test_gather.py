"""Property 20: the kernel gathers what the numpy reference gathers, for every token dtype."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.feed.gather import Gathered, Spans, empty_rows, gather, gather_reference
from tokenreel.rows.pieces import Pieces
from tokenreel.store.open_options import FOREIGN_DTYPES

SHARD_TOKENS = 40
KERNEL = pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")


@st.composite
def piece_lists(draw: st.DrawFn, seq_len: int, num_shards: int) -> Pieces:
    """Draw rows of pieces that fit T + 1 slots; some pieces are empty."""
    rows: list[list[tuple[int, int, int, bool]]] = []
    for _ in range(draw(st.integers(0, 5))):
        room, row = seq_len + 1, []
        for at in range(draw(st.integers(0, 4))):
            length = draw(st.integers(0, min(room, SHARD_TOKENS)))
            start = draw(st.integers(0, SHARD_TOKENS - length))
            shard = draw(st.integers(0, num_shards - 1))
            row.append((shard, start, length, at == 0 or draw(st.booleans())))
            room -= length
        rows.append(row)
    flat = [piece for row in rows for piece in row]
    columns = list(zip(*flat, strict=True)) if flat else [(), (), (), ()]
    return Pieces(
        row_offsets=np.cumsum([0, *map(len, rows)]),
        shard=np.array(columns[0], np.int64),
        start=np.array(columns[1], np.int64),
        length=np.array(columns[2], np.int64),
        document=np.full(len(flat), -1),
        first=np.array(columns[3], bool),
    )


@st.composite
def span_lists(draw: st.DrawFn, pieces: Pieces) -> Spans | None:
    """Draw weighing spans of each piece, in order, some reaching out of it."""
    if draw(st.booleans()):
        return None
    spans: list[tuple[int, int, float]] = []
    offsets = [0]
    for length in pieces.length.tolist():
        cuts = sorted(draw(st.lists(st.integers(-3, length + 3), max_size=4)))
        for start, stop in zip(cuts[::2], cuts[1::2], strict=False):
            spans.append((start, stop, draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))))
        offsets.append(len(spans))
    starts, stops, weights = zip(*spans, strict=True) if spans else ((), (), ())
    return Spans(
        offsets=np.array(offsets, np.int64),
        start=np.array(starts, np.int64),
        stop=np.array(stops, np.int64),
        weight=np.array(weights, np.float32),
    )


def filled(num_rows: int, seq_len: int) -> Gathered:
    rows = empty_rows(num_rows, seq_len)
    for item in fields(rows):
        getattr(rows, item.name).fill(77)
    return rows


@KERNEL
@given(data=st.data(), seq_len=st.integers(1, 30), dtype=st.sampled_from(FOREIGN_DTYPES))
@settings(max_examples=50, deadline=None)
def test_the_kernel_does_what_the_reference_does(
    data: st.DataObject, seq_len: int, dtype: str
) -> None:
    extremes = np.iinfo(dtype)
    tokens = np.random.default_rng(seq_len).integers(
        max(extremes.min, -(2**40)), min(extremes.max, 2**40), (2, SHARD_TOKENS), endpoint=True
    )
    shards = tuple(tokens.astype(dtype))
    pieces = data.draw(piece_lists(seq_len, len(shards)))
    spans = data.draw(span_lists(pieces))
    out_row = np.array(data.draw(st.permutations(range(pieces.num_rows + 1))), np.int64)
    out_row = out_row[: pieces.num_rows]
    pad_id = data.draw(st.integers(-5, 2**40))
    one, other = filled(pieces.num_rows + 1, seq_len), filled(pieces.num_rows + 1, seq_len)
    for fill, target in ((gather, one), (gather_reference, other)):
        fill(
            shards,
            pieces,
            target,
            out_row=out_row,
            buffer=pieces.shard,
            spans=spans,
            pad_id=pad_id,
        )
    for item in fields(one):
        assert np.array_equal(getattr(one, item.name), getattr(other, item.name)), item.name


def one_piece(start: int, length: int, *, shard: int = 0) -> Pieces:
    return Pieces(
        row_offsets=np.array([0, 1]),
        shard=np.array([shard]),
        start=np.array([start]),
        length=np.array([length]),
        document=np.array([-1]),
        first=np.array([True]),
    )


@KERNEL
@pytest.mark.parametrize(
    ("pieces", "out_row"),
    [
        (one_piece(8, 3), 0),
        (one_piece(-1, 3), 0),
        (one_piece(0, -1), 0),
        (one_piece(2**62, 2**62), 0),
        (one_piece(0, 6), 0),
        (one_piece(0, 3, shard=1), 0),
        (one_piece(0, 3, shard=-1), 0),
        (one_piece(0, 3), 1),
        (one_piece(0, 3), -1),
    ],
)
def test_the_kernel_neither_reads_nor_writes_outside(pieces: Pieces, out_row: int) -> None:
    rows = filled(1, 4)
    with pytest.raises(ValueError, match="gather: sizes do not fit"):
        gather(
            (np.arange(10, dtype=np.uint16),),
            pieces,
            rows,
            out_row=np.array([out_row]),
            buffer=pieces.shard,
            spans=None,
            pad_id=0,
        )
    assert (rows.input_ids == 77).all()


@KERNEL
def test_spans_of_a_piece_that_are_not_there_are_not_read() -> None:
    pieces = Pieces(
        row_offsets=np.array([0, 1]),  # the second piece is in no row
        shard=np.zeros(2, np.int64),
        start=np.zeros(2, np.int64),
        length=np.array([3, 3]),
        document=np.full(2, -1),
        first=np.ones(2, bool),
    )
    one = np.ones(1, np.int64)
    spans = Spans(
        offsets=np.array([0, 10**6, 1]), start=one, stop=one, weight=np.ones(1, np.float32)
    )
    with pytest.raises(ValueError, match="gather: sizes do not fit"):
        gather(
            (np.arange(10, dtype=np.uint16),),
            pieces,
            filled(1, 4),
            out_row=np.array([0]),
            buffer=pieces.shard,
            spans=spans,
            pad_id=0,
        )


@KERNEL
@pytest.mark.parametrize("dtype", ["float32", "uint64", "complex64"])
def test_tokens_that_are_no_integers_are_refused(dtype: str) -> None:
    pieces = one_piece(0, 3)
    with pytest.raises(ValueError, match="gather: tokens of an unknown kind"):
        gather(
            (np.arange(10).astype(dtype),),
            pieces,
            filled(1, 4),
            out_row=np.array([0]),
            buffer=pieces.shard,
            spans=None,
            pad_id=0,
        )
