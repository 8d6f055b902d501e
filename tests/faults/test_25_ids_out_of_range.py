"""Fault 25: a token id outside the vocabulary or the dtype: never wraps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.building import SMALL, read_all

from tokenreel import DocumentBatch, Provenance, StoreWriter, native, open_store
from tokenreel.errors import UnfinishedError, VocabularyError, WriteError


@pytest.fixture(params=["native", "numpy"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(native, "extension", lambda: None)
    elif native.extension() is None:
        pytest.skip("the extension is not built or not wanted")


@pytest.mark.parametrize(
    ("vocab_size", "bad"),
    [
        (1000, 1000),
        (1000, 65_536),
        (1000, 65_537),  # 1 after wrapping
        (1000, -1),
        (1000, 2**32),
        (1000, 2**32 + 5),
        (1000, 2**63 - 1),
        (1000, -(2**63)),
        (65_536, 65_536),
        (65_536, -1),
        (65_537, 65_537),
        (2**32, 2**32),
        (2**32, -1),
        (2**32, 2**63 - 1),
        (1, 1),
    ],
)
@pytest.mark.parametrize("position", [0, 3, 11])
def test_an_id_outside_the_vocabulary_names_document_and_position(
    tmp_path: Path, vocab_size: int, bad: int, position: int
) -> None:
    path = tmp_path / "books"
    ids = np.zeros(12, np.int64)
    ids[position] = bad
    with (
        pytest.raises(VocabularyError) as caught,
        StoreWriter(path, **{**SMALL, "vocab_size": vocab_size}) as writer,
    ):
        writer.add([0, 0])
        writer.add([0])
        writer.add(ids)
    assert str(caught.value) == (
        f"split train, document 2: token id at position {position} is outside the vocabulary "
        f"(expected 0 to {vocab_size - 1:,}, got {bad:,}); "
        "use the tokenizer the store was declared with, or a larger vocab_size"
    )
    with pytest.raises(UnfinishedError):
        open_store(path)


def test_a_batch_names_the_document_within_it_and_where_it_came_from(tmp_path: Path) -> None:
    ids = np.arange(40)
    ids[33] = 5000
    origins = [Provenance(file="web.jsonl", row=row) for row in range(4)]
    offsets = np.array([0, 10, 20, 30, 40])
    with (
        pytest.raises(VocabularyError) as caught,
        StoreWriter(tmp_path / "books", provenance=True, **SMALL) as writer,
    ):
        writer.add([1], split="val")
        writer.add([1], split="val")
        writer.add_batch(DocumentBatch(ids=ids, offsets=offsets, provenance=origins), split="val")
    assert caught.value.where == "split val, document 5 (web.jsonl:4)"
    assert "at position 3 " in caught.value.what


def test_after_an_id_outside_the_vocabulary_nothing_is_committed(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "books", **SMALL)
    writer.add([1] * 12)
    writer.add([2] * 12)
    with pytest.raises(VocabularyError):
        writer.add([1, 2, 1000])
    for refused in (writer.commit, lambda: writer.add([3]), writer.resume):
        with pytest.raises(WriteError) as caught:
            refused()
        assert str(caught.value) == (
            f"{tmp_path / 'books'}: an earlier call failed half-way, so this writer can go no "
            "further; open a new writer: finished shards are kept"
        )
    writer.abandon()
    with StoreWriter(tmp_path / "books", **SMALL) as again:
        assert again.resume() == 2
    assert read_all(tmp_path / "books") == {"train": [[1] * 12, [2] * 12]}


def test_swallowing_the_error_does_not_help(tmp_path: Path) -> None:
    with (
        pytest.raises(WriteError, match="failed half-way"),
        StoreWriter(tmp_path / "books", **SMALL) as writer,
    ):
        writer.add([1])
        with pytest.raises(VocabularyError):
            writer.add([-1])
    with pytest.raises(UnfinishedError):
        open_store(tmp_path / "books")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">u8"])
def test_the_last_id_of_the_vocabulary_fits_and_the_next_does_not(
    tmp_path: Path, dtype: str
) -> None:
    last = min(np.iinfo(dtype).max - 1, 2**32 - 2)
    with StoreWriter(tmp_path / "books", vocab_size=last + 1) as writer:
        writer.add(np.array([0, last], dtype))
        with pytest.raises(VocabularyError):
            writer.add(np.array([0, last + 1], dtype))
        writer.abandon()
    with StoreWriter(tmp_path / "more", vocab_size=last + 1) as writer:
        writer.add(np.array([0, last], dtype))
    assert read_all(tmp_path / "more") == {"train": [[0, last]]}


def test_an_id_is_found_in_the_middle_of_many(tmp_path: Path) -> None:
    ids = np.arange(20_000) % 1000
    ids[12_345] = 1000
    with (
        pytest.raises(VocabularyError, match=r"position 12,345 ") as caught,
        StoreWriter(tmp_path / "books", vocab_size=1000, shard_bytes=2**20) as writer,
    ):
        writer.add(ids)
    assert caught.value.actual == 1000


@pytest.mark.parametrize(
    "ids",
    [[1.0, 2.0], [True, False], ["1"], [2**64], [None], [1 + 0j], np.array([1], "M8[s]")],
)
def test_ids_that_are_no_integers_are_refused(tmp_path: Path, ids: Any) -> None:
    with (
        pytest.raises(VocabularyError, match="token ids must be integers"),
        StoreWriter(tmp_path / "books", **SMALL) as writer,
    ):
        writer.add(ids)
