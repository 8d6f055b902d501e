"""Property 20: the kernel gathers what the numpy reference gathers, for every token dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.feed.gather import (
    IGNORED,
    Gathered,
    GatheredIds,
    Spans,
    empty_rows,
    gather,
    gather_reference,
)
from tokenreel.rows.pieces import Pieces
from tokenreel.store.open_options import FOREIGN_DTYPES

SHARD_TOKENS = 700  # some pieces are longer than a block of the kernel
KERNEL = pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")


@st.composite
def piece_lists(draw: st.DrawFn, seq_len: int, num_shards: int) -> Pieces:
    """Draw rows of pieces that fit T + 1 slots; some pieces are empty."""
    rows: list[list[tuple[int, int, int, bool]]] = []
    for _ in range(draw(st.integers(0, 5))):
        room, row = seq_len + 1, []
        for at in range(draw(st.integers(0, 4))):
            length = draw(st.integers(0, min(room, SHARD_TOKENS)) | st.just(min(room, 300)))
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
@given(
    data=st.data(),
    seq_len=st.integers(1, 30) | st.integers(120, 600),
    dtype=st.sampled_from(FOREIGN_DTYPES),
)
@settings(max_examples=60, deadline=None)
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
    asked: dict[str, Any] = {
        "out_row": out_row if data.draw(st.booleans()) else None,
        "buffer": pieces.shard,
        "spans": spans,
        "pad_id": data.draw(st.integers(-5, 2**40)),
        "label_pad": data.draw(st.just(IGNORED) | st.integers(-5, 2**40)),
        "stored": data.draw(stored_weights()) if spans is None else (),
    }
    one, other = filled(pieces.num_rows + 1, seq_len), filled(pieces.num_rows + 1, seq_len)
    gather(shards, pieces, one, **asked)
    gather_reference(shards, pieces, other, **asked)
    for item in fields(one):
        mine, theirs = getattr(one, item.name), getattr(other, item.name)
        assert np.array_equal(mine, theirs, equal_nan=True), item.name
    for alone in (
        ids_alone(filled(pieces.num_rows + 1, seq_len), weighed=w) for w in (True, False)
    ):
        gather(shards, pieces, alone, **asked)
        assert np.array_equal(alone.input_ids, one.input_ids)
        assert np.array_equal(alone.labels, one.labels)
        weights = alone.loss_weights
        assert weights is None or np.array_equal(weights, one.loss_weights, equal_nan=True)


@st.composite
def stored_weights(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Draw none, or what the tokens of two shards weigh, NaN among it."""
    kinds = draw(st.sampled_from([(), ("u1", "u1"), ("f4", "f4"), ("u1", "f4")]))
    stored = [(np.random.default_rng(3).random(SHARD_TOKENS) * 200).astype(kind) for kind in kinds]
    for weights in stored:
        weights[::3] = np.nan if weights.dtype == np.float32 else 0
    return tuple(stored)


def ids_alone(rows: Gathered, *, weighed: bool) -> GatheredIds:
    weights = rows.loss_weights if weighed else None
    return GatheredIds(input_ids=rows.input_ids, labels=rows.labels, loss_weights=weights)


@pytest.mark.parametrize("fill", [gather, gather_reference])
def test_labels_are_the_tokens_that_follow_whatever_the_stored_weights_say(
    fill: Callable[..., object],
) -> None:
    tokens, weights = np.array([5, 6, 7, 8], np.uint16), np.array([9, 0, 3, 1], np.uint8)
    rows, pieces = filled(1, 5), one_piece(0, 3)
    shown = {"buffer": pieces.shard, "spans": None, "pad_id": 1, "label_pad": 2}
    fill((tokens,), pieces, rows, **shown, stored=(weights,))
    assert rows.input_ids.tolist() == [[5, 6, 7, 1, 1]]
    assert rows.labels.tolist() == [[6, 7, 2, 2, 2]]
    assert rows.loss_weights.tolist() == [[0, 3, 0, 0, 0]]
    fill((tokens,), pieces, rows, buffer=pieces.shard, spans=None, pad_id=1)
    assert rows.labels.tolist() == [[6, 7, -100, -100, -100]]
    assert rows.loss_weights.tolist() == [[1, 1, 0, 0, 0]]


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
@pytest.mark.parametrize(
    "stored",
    [(np.ones(9, np.uint8),), (np.ones(10, np.uint16),), (np.ones(10, np.uint8),) * 2],
    ids=["too short", "neither bytes nor floats", "one too many"],
)
def test_weights_that_do_not_fit_the_tokens_are_refused(stored: tuple[np.ndarray, ...]) -> None:
    rows, pieces, shards = filled(1, 4), one_piece(0, 3), (np.arange(10, dtype=np.uint16),)
    with pytest.raises(ValueError, match="gather: sizes do not fit"):
        gather(shards, pieces, rows, buffer=pieces.shard, spans=None, pad_id=0, stored=stored)
    assert all((getattr(rows, item.name) == 77).all() for item in fields(rows))


@KERNEL
def test_rows_that_do_not_fit_the_arrays_are_refused() -> None:
    one, shards = one_piece(0, 3), (np.arange(10, dtype=np.uint16),)
    columns = {item.name: np.tile(getattr(one, item.name), 2) for item in fields(one)}
    pieces = Pieces(**{**columns, "row_offsets": np.arange(3)})
    shown: dict[str, Any] = {"buffer": pieces.shard, "spans": None, "pad_id": 0}
    with pytest.raises(ValueError, match="gather: sizes do not fit"):
        gather(shards, pieces, ids_alone(filled(1, 4), weighed=False), **shown)
    short = replace(pieces, length=pieces.length[:1])
    with pytest.raises(ValueError, match="gather: sizes do not fit"):
        gather(shards, short, ids_alone(filled(2, 4), weighed=False), **shown)


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
