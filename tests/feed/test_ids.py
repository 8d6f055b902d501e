"""Inputs, labels and stored weights alone: the kernel does what the numpy reference does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.feed.ids import IdRows, gather_ids, gather_ids_reference
from tokenreel.feed.tokens import FEW_SHARDS
from tokenreel.layouts.open_store import open_store
from tokenreel.rows.heads import Heads
from tokenreel.rows.pieces import Pieces
from tokenreel.store.open_options import FOREIGN_DTYPES

SHARD_TOKENS = 700  # some pieces are longer than a block of the kernel
KERNEL = pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")


@st.composite
def piece_lists(draw: st.DrawFn, seq_len: int, num_shards: int) -> Pieces:
    """Draw rows of up to three pieces that fit T + 1 slots; some are empty."""
    rows: list[list[tuple[int, int, int]]] = []
    for _ in range(draw(st.integers(0, 4))):
        room, row = seq_len + 1, []
        for _ in range(draw(st.integers(0, 3))):
            length = draw(st.integers(0, min(room, SHARD_TOKENS)) | st.just(min(room, 300)))
            start = draw(st.integers(0, SHARD_TOKENS - length))
            row.append((draw(st.integers(0, num_shards - 1)), start, length))
            room -= length
        rows.append(row)
    return made([piece for row in rows for piece in row], [len(row) for row in rows])


def made(flat: list[tuple[int, int, int]], counts: list[int]) -> Pieces:
    columns = np.array(flat, np.int64).reshape(-1, 3).T.copy()
    return Pieces(
        row_offsets=np.cumsum([0, *counts]),
        shard=columns[0],
        start=columns[1],
        length=columns[2],
        document=np.full(len(flat), -1),
        first=np.ones(len(flat), bool),
    )


def filled(num_rows: int, seq_len: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = (num_rows, seq_len)
    return np.full(shape, 77), np.full(shape, 77), np.full(shape, 77, np.float32)


@KERNEL
@given(
    data=st.data(),
    seq_len=st.integers(1, 8) | st.integers(120, 600),
    dtype=st.sampled_from(FOREIGN_DTYPES),
    pads=st.tuples(st.integers(-5, 2**40), st.integers(-100, 2**40)),
    masks=st.sampled_from(["none", "u1", "f4", "both"]),
)
@settings(max_examples=60, deadline=None)
def test_the_kernel_does_what_the_reference_does(
    data: st.DataObject, seq_len: int, dtype: str, pads: tuple[int, int], masks: str
) -> None:
    generator, extremes = np.random.default_rng(seq_len), np.iinfo(dtype)
    low, high = max(extremes.min, -(2**40)), min(extremes.max, 2**40)
    shards = tuple(generator.integers(low, high, (2, SHARD_TOKENS), endpoint=True).astype(dtype))
    kinds = {"none": (), "u1": ("u1", "u1"), "f4": ("f4", "f4"), "both": ("u1", "f4")}[masks]
    stored = tuple((generator.random(SHARD_TOKENS) * 200).astype(kind) for kind in kinds)
    if masks == "f4":
        stored[0][::3] = np.nan  # what is no weight is shown as it is, for others to refuse
    pieces = data.draw(piece_lists(seq_len, len(shards)))
    one, other = filled(pieces.num_rows, seq_len), filled(pieces.num_rows, seq_len)
    for fill, out in ((gather_ids, one), (gather_ids_reference, other)):
        asked = out if stored else out[:2]
        settings: dict[str, Any] = {"pad_id": pads[0], "label_pad": pads[1], "stored": stored}
        fill(shards, pieces.shard, pieces, asked, **settings)
    for mine, theirs in zip(one, other, strict=True):
        assert np.array_equal(mine, theirs, equal_nan=True)
    if not stored:
        assert (one[2] == 77).all()


def test_labels_are_the_tokens_that_follow_whatever_they_weigh() -> None:
    tokens, weights = np.array([5, 6, 7, 8], np.uint16), np.array([9, 0, 3, 1], np.uint8)
    out = filled(1, 5)
    pieces = made([(0, 0, 3)], [1])
    gather_ids((tokens,), pieces.shard, pieces, out, pad_id=1, label_pad=2, stored=(weights,))
    assert [array[0].tolist() for array in out] == [
        [5, 6, 7, 1, 1],
        [6, 7, 2, 2, 2],
        [0, 3, 0, 0, 0],
    ]


@KERNEL
@pytest.mark.parametrize(
    "piece",
    [(0, 8, 3), (0, -1, 3), (0, 0, -1), (0, 2**62, 2**62), (0, 0, 6), (1, 0, 3), (-1, 0, 3)],
)
def test_the_kernel_neither_reads_nor_writes_outside(piece: tuple[int, int, int]) -> None:
    out, pieces = filled(1, 4), made([piece], [1])
    shards, stored = (np.arange(10, dtype=np.uint16),), (np.ones(10, np.uint8),)
    with pytest.raises(ValueError, match="gather_ids: sizes do not fit"):
        gather_ids(shards, pieces.shard, pieces, out, pad_id=0, label_pad=0, stored=stored)
    assert all((array == 77).all() for array in out)


@KERNEL
@pytest.mark.parametrize(
    "stored",
    [(np.ones(9, np.uint8),), (np.ones(10, np.uint16),), (np.ones(10, np.uint8),) * 2],
    ids=["too short", "neither bytes nor floats", "one too many"],
)
def test_weights_that_do_not_fit_the_tokens_are_refused(stored: tuple[np.ndarray, ...]) -> None:
    out, pieces = filled(1, 4), made([(0, 0, 3)], [1])
    shards = (np.arange(10, dtype=np.uint16),)
    with pytest.raises(ValueError, match="gather_ids: sizes do not fit"):
        gather_ids(shards, pieces.shard, pieces, out, pad_id=0, label_pad=0, stored=stored)
    assert all((array == 77).all() for array in out)


@KERNEL
def test_rows_that_do_not_fit_the_arrays_are_refused() -> None:
    pieces = made([(0, 0, 3), (0, 0, 3)], [1, 1])
    shards = (np.arange(10, dtype=np.uint16),)
    settings: dict[str, Any] = {"pad_id": 0, "label_pad": 0}
    with pytest.raises(ValueError, match="gather_ids: sizes do not fit"):
        gather_ids(shards, pieces.shard, pieces, filled(1, 4)[:2], **settings)
    short = replace(pieces, length=pieces.length[:1])
    with pytest.raises(ValueError, match="gather_ids: sizes do not fit"):
        gather_ids(shards, pieces.shard, short, filled(2, 4)[:2], **settings)


@KERNEL
@pytest.mark.parametrize("dtype", ["float32", "uint64"])
def test_tokens_that_are_no_integers_of_a_store_are_refused(dtype: str) -> None:
    pieces, shards = made([(0, 0, 3)], [1]), (np.arange(10).astype(dtype),)
    with pytest.raises(ValueError, match="gather_ids: tokens of an unknown kind"):
        gather_ids(shards, pieces.shard, pieces, filled(1, 4)[:2], pad_id=0, label_pad=0)


@pytest.mark.parametrize("mode", ["mmap", "pread"])
@pytest.mark.parametrize("num_shards", [3, FEW_SHARDS + 1])
def test_weights_come_from_the_shard_that_the_tokens_come_from(
    tmp_path: Path, mode: str, num_shards: int
) -> None:
    for number in range(num_shards):
        folder = tmp_path / f"shard_{number:02}"
        folder.mkdir()
        tokens = np.arange(7 * number, 7 * number + 6, dtype=np.uint32)
        tokens.tofile(folder / "tokens.bin")
        tokens.astype("f4" if number % 2 else "u1").tofile(folder / "mask.bin")
        np.array([[0, 2], [2, 4]], np.uint64).tofile(folder / "episodes.idx")
    split = open_store(tmp_path, layout="episodes", mode=mode)["train"]
    heads, rows = Heads(split=split, seq_len=3), IdRows(split, 3)
    for numbers in ([1, 2 * num_shards - 1, 0], [4, 3]):
        x, y, weights = rows.gather_weighed(heads.pieces(np.array(numbers)), 999)
        for row, number in enumerate(numbers):
            first = 7 * (number // 2) + (number % 2) * 2
            labels = list(range(first + 1, first + (4 if number % 2 else 2)))
            padding = 3 - len(labels)
            assert x[row].tolist() == ([first, *labels] + [999] * padding)[:3]
            assert y[row].tolist() == labels + [999] * padding
            assert weights[row].tolist() == labels + [0] * padding
