"""The last id, byte, token and document that there is, and the first that there is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import Doc, write_store
from tests.store.building import build as write_books
from tests.store.independent import edit_manifest

from tokenreel import StoreWriter, canonical, native, open_store
from tokenreel.canonical import canonical_bytes, read_canonical
from tokenreel.dropin.caches import cache_writer as cache
from tokenreel.errors import DamageError, FormatError, VocabularyError
from tokenreel.filesystem import LOCAL
from tokenreel.store import document_index as documents
from tokenreel.store import id_range
from tokenreel.store import narrow as narrowing
from tokenreel.store.document_index import (
    DocumentIndex,
    Offsets,
    Pairs,
    Starts,
    check_index,
    find_documents,
)
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.id_range import check_file_ids
from tokenreel.store.narrow import narrow, narrow_ended
from tokenreel.store.shard_record import read_record
from tokenreel.store.split import Split


@pytest.fixture(params=["native", "numpy"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(native, "extension", lambda: None)


def test_a_file_of_just_the_size_that_is_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = canonical_bytes({"a": "b" * 100})
    (tmp_path / "a.json").write_bytes(data)
    monkeypatch.setattr(canonical, "MAX_JSON_BYTES", len(data))
    assert read_canonical(tmp_path / "a.json") == {"a": "b" * 100}
    monkeypatch.setattr(canonical, "MAX_JSON_BYTES", len(data) - 1)
    with pytest.raises(FormatError, match=f"file is too large .*got {len(data)}"):
        read_canonical(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("limit", "last"), [(100, 99), (2**16, 65_535), (2**16 + 1, 65_535), (2**20, 65_535)]
)
@pytest.mark.parametrize("dtype", ["<i8", "<u4", ">i4"])
@pytest.mark.usefixtures("kernel")
def test_the_last_id_of_the_vocabulary_and_of_the_dtype_fits_and_the_next_does_not(
    limit: int, last: int, dtype: str
) -> None:
    target = np.dtype("<u2")
    assert narrow(np.array([0, last], dtype), target, limit=limit).tolist() == [0, last]
    one_more = np.array([0, last + 1], dtype)
    with pytest.raises(VocabularyError, match=f"position 1 is outside .*0 to {last:,}, got"):
        narrow(one_more, target, limit=limit)
    offsets = np.array([0, 1])
    ended = narrow_ended(np.array([last], dtype), offsets, target, limit=limit, end_id=last)
    assert ended.tolist() == [last, last]
    for ids, end_id in (([last + 1], 0), ([0], last + 1), ([0], -1)):
        with pytest.raises(VocabularyError, match="is outside the vocabulary"):
            narrow_ended(np.array(ids, dtype), offsets, target, limit=limit, end_id=end_id)


@pytest.mark.parametrize(("tokens", "shards"), [(11, [11]), (12, [12]), (13, [12, 1])])
def test_a_document_of_just_a_shard_fills_it_and_a_longer_one_goes_on(
    tmp_path: Path, tokens: int, shards: list[int]
) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=100, shard_bytes=24) as writer:
        writer.add(range(tokens))
    split = open_store(tmp_path / "s")["train"]
    assert [shard.num_tokens for shard in split.shards] == shards
    assert split.num_documents == 1 and split.document(0).tokens.tolist() == list(range(tokens))


@pytest.fixture(params=["turns", "weights"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Split, list[Doc]]:
    """Documents in shards of twenty tokens, none of which goes on in the next."""
    made = write_store(
        tmp_path / "s", [12, 8, 0, 20, 0, 7, 1], sidecar=request.param, shard_tokens=20, seed=4
    )
    split = open_store(tmp_path / "s")["train"]
    assert split.token_starts.tolist() == [0, 20, 40, 48]
    return split, made


def test_each_document_has_its_tokens_and_none_is_behind_the_last(
    written: tuple[Split, list[Doc]],
) -> None:
    split, made = written
    stops = np.cumsum([len(doc.tokens) for doc in made]).tolist()
    spans = [split.document_span(number) for number in range(7)]
    assert spans == list(zip([0, *stops[:-1]], stops, strict=True))
    for number in (-1, 7):
        with pytest.raises(IndexError, match=f"no document {number} of 7"):
            split.document(number)


def test_what_lies_between_two_positions_is_all_of_it_and_no_more(
    written: tuple[Split, list[Doc]],
) -> None:
    split, made = written
    weights = [weight for doc in made for weight in doc.weights]
    starts = split.turns_between(0, 48)["start"].tolist() if split.has_turns else []
    for start in range(48):
        for stop in range(start + 1, 49):
            if split.has_turns:
                found = split.turns_between(start, stop)["start"].tolist()
                assert found == [at for at in starts if start <= at < stop]
            else:
                assert split.weights_between(start, stop).tolist() == weights[start:stop]


def test_documents_are_bounded_alike_however_many_are_asked_for(
    written: tuple[Split, list[Doc]],
) -> None:
    split, made = written
    ends = np.cumsum([len(doc.tokens) for doc in made])
    begins = ends - [len(doc.tokens) for doc in made]
    for first in range(8):
        for stop in range(first, 8):
            found = split.document_bounds(first, stop)
            assert found[0].tolist() == begins[first:stop].tolist()
            assert found[1].tolist() == ends[first:stop].tolist()


@pytest.mark.parametrize("at_once", [1, 3, 10, 11, 100])
def test_an_id_outside_the_vocabulary_is_found_in_whichever_part_of_a_file_it_is(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_range, "TOKENS_AT_ONCE", at_once)
    file = ArrayFile(path=tmp_path / "t.bin", dtype=np.dtype("<u2"), count=10)
    for at in (0, 2, 3, 9):
        tokens = np.full(10, 7, "<u2")
        tokens[at] = 8
        tokens.tofile(file.path)
        check_file_ids(file, 9)
        with pytest.raises(VocabularyError, match=f"token {at} is outside .*0 to 7, got 8"):
            check_file_ids(file, 8)


@pytest.mark.parametrize("at_once", [1, 3, 10, 11, 100])
def test_what_is_exported_a_part_at_a_time_is_whole_and_its_errors_count_through(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrowing, "NARROW_TOKENS", at_once)
    monkeypatch.setattr(cache, "COPY_TOKENS", at_once)
    dtype, ids = np.dtype("<u2"), np.arange(10)
    parts = list(narrowing.narrowed(ids, dtype, limit=10, where="here"))
    assert np.concatenate(parts).tolist() == ids.tolist()
    with pytest.raises(VocabularyError, match="here: token id at position 9 is outside"):
        list(narrowing.narrowed(ids, dtype, limit=9, where="here"))
    write_store(tmp_path / "s", [12, 30, 8], shard_tokens=15)
    split = open_store(tmp_path / "s")["train"]
    cache.write_token_shards(tmp_path / "c", split, (5, 48), shard_bytes=40, filesystem=LOCAL)
    shards = [np.fromfile(file, "<u2") for file in sorted((tmp_path / "c").iterdir())]
    assert [len(shard) for shard in shards] == [20, 20, 3]
    assert np.concatenate(shards).tolist() == split.read(5, 48).tolist()


INDEXES: list[DocumentIndex] = [
    Offsets(np.array([0, 3, 3, 5, 5, 9], np.uint64)),
    Starts(np.array([0, 3, 3, 5, 5], np.uint64), end=9),
    Pairs(np.array([[0, 3], [3, 0], [3, 2], [5, 0], [5, 4]], np.uint64)),
    Pairs(np.array([[1, 2], [4, 0], [4, 1], [7, 3]], np.uint64)),  # with gaps
    Offsets(np.array([0, 9], np.uint64)),
    Starts(np.array([2], np.uint64), end=9),
]


@pytest.mark.parametrize("index", INDEXES)
def test_each_position_is_in_the_document_that_covers_it_or_in_a_gap(index: DocumentIndex) -> None:
    starts, stops = index.bounds(np.arange(len(index)))
    positions = np.arange(12)
    expected = [
        next((n for n in range(len(index)) if starts[n] <= at < stops[n]), -1) for at in positions
    ]
    assert find_documents(index, positions).tolist() == expected
    assert [int(find_documents(index, positions[at : at + 1])[0]) for at in positions] == expected


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_an_index_is_checked_alike_however_many_documents_are_looked_at_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHECK_DOCUMENTS", at_once)
    good = np.array([[1, 2], [3, 0], [3, 1], [7, 3]], np.uint64)
    check_index(Pairs(good), num_tokens=10, where=Path("x"))
    wrong = [(number, 0, int(good[number - 1].sum()) - 1) for number in (1, 2, 3)]  # overlaps
    wrong += [(number, 1, 9) for number in (0, 1, 2)] + [(3, 1, 4), (3, 0, 8)]
    for number, column, value in wrong:
        pairs = good.copy()
        pairs[number, column] = value
        stops = pairs.sum(axis=1)
        # What goes on too long inside the shard is seen at the next document, which it overlaps.
        seen = number if column == 0 or stops[number] > 10 else number + 1
        with pytest.raises(DamageError, match=f"document {seen} of the index is not in order"):
            check_index(Pairs(pairs), num_tokens=10, where=Path("x"))


@pytest.mark.parametrize("value", [0, 1, "false", None])
def test_whether_a_shard_continues_is_told_by_true_or_false_alone(
    tmp_path: Path, value: object
) -> None:
    path = write_books(tmp_path / "books")
    edit_manifest(path, lambda content: content["splits"]["train"][0].update(continues=value))
    with pytest.raises(FormatError, match=r"splits\.train\[0\]\.continues"):
        open_store(path)


@pytest.mark.parametrize("digests", ["0" * 64, ["0" * 63], ["0" * 63 + "g"], [0], {"0" * 64: 1}])
def test_the_digests_of_a_record_are_a_list_of_digests(tmp_path: Path, digests: object) -> None:
    path = write_books(tmp_path / "books") / "train/shard_00000.json"
    record = json.loads(path.read_bytes())
    record["blocks"]["bin"] = digests
    path.write_bytes(canonical_bytes(record))
    with pytest.raises(FormatError, match=r"blocks\.bin is not a list of digests"):
        read_record(path)
