"""Fault 12: an index that is not monotone, negative, overlapping, past the end, overflowing.

The checksums are valid: the store says what someone made it say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.store.building import SMALL, build, build_full
from tests.store.independent import find_damage, read_manifest, seal

from tokenreel import DocumentBatch, StoreWriter, open_store
from tokenreel.errors import DamageError, InputError
from tokenreel.inspect.verify import verify_store
from tokenreel.store import reader as native
from tokenreel.text.turns import TURN

NUM_TOKENS = 9  # of the first shard of BOOKS: documents of 5, 4 and 0 tokens


@pytest.mark.parametrize(
    ("offsets", "document"),
    [
        pytest.param([0, 6, 5, 9], 1, id="not monotone"),
        pytest.param([0, 2**64 - 1, 9, 9], 0, id="negative"),
        pytest.param([0, 10, 9, 9], 0, id="past the end, and back"),
        pytest.param([0, 2**63, 9, 9], 0, id="the sign bit"),
        pytest.param([0, 2**63 - 1, 9, 9], 0, id="the largest"),
        pytest.param([0, 5, 2**64 - 4, 9], 1, id="start + length overflows"),
        pytest.param([0, 5, 4, 9], 1, id="overlapping"),
    ],
)
def test_a_bad_document_index_is_refused_before_anything_is_sliced(
    tmp_path: Path, offsets: list[int], document: int
) -> None:
    path = build(tmp_path / "books")
    docs = path / "train/shard_00000.docs"
    docs.write_bytes(np.array(offsets, "<u8").tobytes())
    seal(path)
    assert find_damage(path) == [], "the checksums must be valid"
    for mode in ("mmap", "pread"):
        with pytest.raises(DamageError) as caught:
            open_store(path, mode=mode)
        message = f"document {document} of the index is not in order or not inside the shard"
        assert caught.value.what == message
        assert caught.value.where == str(docs)
        assert f"<= {NUM_TOKENS}" in str(caught.value.expected)
        assert "start" in str(caught.value.actual)
    assert not verify_store(path).ok


@pytest.mark.parametrize("offsets", [[0, 5, 8, 8], [1, 5, 9, 9], [0, 5, 9, 10]])
def test_an_index_that_does_not_cover_its_shard_is_refused(
    tmp_path: Path, offsets: list[int]
) -> None:
    path = build(tmp_path / "books")
    docs = path / "train/shard_00000.docs"
    docs.write_bytes(np.array(offsets, "<u8").tobytes())
    seal(path)
    assert find_damage(path) == [], "the checksums must be valid"
    with pytest.raises(DamageError) as caught:
        open_store(path)
    assert str(caught.value) == (
        f"{docs}: the document index does not cover the shard "
        f"(expected 0 to {NUM_TOKENS}, got {offsets[0]} to {offsets[-1]})"
    )


def test_an_index_too_large_to_check_at_open_is_checked_at_first_touch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "books")
    docs = path / "train/shard_00000.docs"
    docs.write_bytes(np.array([0, 6, 5, 9], "<u8").tobytes())
    seal(path)
    monkeypatch.setattr(native, "CHECKED_SHARDS", 0)
    store = open_store(path)
    for touch in (
        lambda: store.document(0),
        lambda: store["train"].document_span(0),
        lambda: list(store["train"].documents()),
    ):
        with pytest.raises(DamageError, match="document 1 of the index"):
            touch()


def spoil_turn(field: str, value: object, number: int = 0) -> Callable[[np.ndarray], None]:
    def spoil(turns: np.ndarray) -> None:
        turns[field][number] = value

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(spoil_turn("start", 2**63 - 1), id="start + length overflows"),
        pytest.param(spoil_turn("start", 2**63), id="negative"),
        pytest.param(spoil_turn("start", 2**64 - 1), id="minus one"),
        pytest.param(spoil_turn("start", 1000), id="past the end"),
        pytest.param(spoil_turn("start", 1, number=1), id="overlapping"),
        pytest.param(spoil_turn("length", 2**32 - 1), id="too long"),
        pytest.param(spoil_turn("head", 2**16 - 1), id="a head beyond the turn"),
        pytest.param(spoil_turn("weight", np.nan), id="a weight of nan"),
        pytest.param(spoil_turn("weight", np.inf), id="an infinite weight"),
        pytest.param(spoil_turn("weight", -1), id="a negative weight"),
    ],
)
def test_a_bad_turn_table_is_refused_before_anything_is_sliced(
    tmp_path: Path, spoil: Callable[[np.ndarray], None]
) -> None:
    path = build_full(tmp_path / "books")
    file = path / "train/shard_00000.turns"
    turns = np.fromfile(file, TURN)
    spoil(turns)
    file.write_bytes(turns.tobytes())
    seal(path)
    assert find_damage(path) == []
    for mode in ("mmap", "pread"):
        store = open_store(path, mode=mode)
        with pytest.raises(DamageError) as caught:
            store.document(0)
        assert caught.value.where == str(file)
        assert "not in order, not inside the shard, or has a bad weight" in caught.value.what
    assert not verify_store(path).ok


@pytest.mark.parametrize("offset", [10**6, 2**32 - 2])
def test_provenance_that_points_past_its_strings_is_refused(tmp_path: Path, offset: int) -> None:
    path = build_full(tmp_path / "books")
    file = path / "train/shard_00000.origins"
    origins = np.fromfile(file, "<u4").reshape(-1, 6)
    origins[0, 4] = offset
    file.write_bytes(origins.tobytes())
    seal(path)
    with pytest.raises(DamageError, match="a provenance string points past the end") as caught:
        open_store(path).document(0)
    assert caught.value.where == str(path / "train/shard_00000.strings")
    assert not verify_store(path).ok


def test_provenance_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = build_full(tmp_path / "books")
    file = path / "train/shard_00000.strings"
    data = bytearray(file.read_bytes())
    data[6] = 0xFF
    file.write_bytes(data)
    seal(path)
    with pytest.raises(DamageError, match="a provenance string is not UTF-8 at byte 6"):
        open_store(path).document(0)
    assert not verify_store(path).ok


@pytest.mark.parametrize(
    "offsets",
    [
        np.array([0, 5, 3, 6]),
        np.array([0, 5, 3, 6], np.uint64),  # differences of unsigned numbers are never negative
        np.array([0, 5, 3, 6], np.uint8),
        np.array([0, 3]),
        np.array([1, 6]),
        np.array([0, 7]),
        np.array([], np.int64),
        np.array([0.0, 6.0]),
        np.array([[0, 6]]),
    ],
)
def test_offsets_that_make_no_sense_are_refused_by_the_writer(
    tmp_path: Path, offsets: np.ndarray
) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        with pytest.raises(InputError, match="offsets"):
            writer.add_batch(DocumentBatch(ids=np.arange(6), offsets=offsets))
        writer.add([1])  # nothing was written, so the writer goes on
    assert read_manifest(tmp_path / "books")["splits"]["train"][0]["tokens"] == 1
