"""The smallest plan there is, the last setting that is allowed, and damage that is off by one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.feed.making import recipe_of
from tests.rows.corpora import Place, write_store
from tests.rows.planning import LENGTHS, plan_folder, plan_of, rows_of, vouch

from tokenreel import Feed, Source
from tokenreel.errors import ConfigError, DamageError
from tokenreel.rows import untrained, verified
from tokenreel.rows.packed import Packed, plan_packed
from tokenreel.rows.packing import MAX_CAPACITY
from tokenreel.rows.plan_file import check_plan, open_plan
from tokenreel.rows.plan_table import COLUMNS, TABLE
from tokenreel.rows.windows import Windows, plan_windows
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.store import Store


@pytest.fixture
def store(place: Place) -> Store:
    return write_store(place(), LENGTHS)


def rewrite(file: Path, at: int, value: int) -> None:
    """Put another number into a column of a plan; its header vouches for it."""
    column = np.fromfile(file, COLUMNS[file.name])
    column[at] = value
    column.tofile(file)
    vouch(file.parent)


def test_two_tokens_are_a_window_and_one_is_none(place: Place) -> None:
    windows = plan_windows(split=write_store(place(), [2])["train"], seq_len=8)
    assert windows.num_rows == 1 and windows.pieces(np.arange(1)).length.tolist() == [2]
    with pytest.raises(ConfigError, match=r"too few tokens for a window \(expected >= 2, got 1\)"):
        plan_windows(split=write_store(place(), [1])["train"], seq_len=8)


def test_a_window_of_nothing_but_borders_is_left_out_however_short_their_run(place: Place) -> None:
    # Window 1 is the end of the first document, T - 1 documents of one token, and the beginning
    # of the last: every target in it is the first token of a document.
    split = write_store(place(), [5, 1, 1, 1, 6])["train"]
    windows = plan_windows(split=split, seq_len=4, by_document=True)
    assert windows.num_windows == 4 and windows.ledger["untrained_rows"] == 1
    assert windows.kept is not None and windows.kept.tolist() == [0, 2, 3]
    fewer = plan_windows(
        split=write_store(place(), [6, 1, 1, 6])["train"], seq_len=4, by_document=True
    )
    assert fewer.kept is None


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [([5, 1], [0]), ([5, 2], None), ([5, 1, 1], [0]), ([9, 1], [0, 1]), ([4, 2], None)],
)
def test_a_short_last_window_of_nothing_but_borders_is_left_out(
    place: Place, lengths: list[int], kept: list[int] | None
) -> None:
    split = write_store(place(), lengths)["train"]
    windows = plan_windows(split=split, seq_len=4, by_document=True)
    assert (None if windows.kept is None else windows.kept.tolist()) == kept
    assert windows.ledger["untrained_rows"] == (kept is not None)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("lengths", "filled", "run"),
    [
        ([5, 0, 6], 2, 0),
        ([1, 1, 0, 1, 4, 1, 1], 6, 3),  # an empty document does not end a run
        ([3, 1, 1, 1, 1], 5, 4),
        ([1, 0, 0, 0], 1, 1),
        ([2, 1, 2, 1, 1, 2], 6, 2),
    ],
)
def test_documents_are_counted_alike_however_many_are_looked_at_at_once(
    place: Place,
    lengths: list[int],
    filled: int,
    run: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split = write_store(place(), lengths)["train"]
    monkeypatch.setattr(untrained, "DOCUMENTS_AT_ONCE", at_once)
    assert untrained.survey_documents(split) == (filled, run)
    windows = plan_windows(split=split, seq_len=6, by_document=True) if sum(lengths) > 1 else None
    if windows is not None and windows.kept is None:
        assert windows.ledger["trained"] == sum(lengths) - filled


def test_a_kept_window_right_behind_the_last_is_damage(chats: Store) -> None:
    whole = rows_of(chats, "windows")
    assert isinstance(whole, Windows)
    file = plan_folder(chats) / "kept"
    column = np.fromfile(file, "<i8")
    for number, is_there in ((whole.num_windows - 1, True), (whole.num_windows, False)):
        column[-1] = number
        column.tofile(file)
        vouch(file.parent)
        rows = rows_of(chats, "windows")
        if is_there:
            rows.pieces(np.arange(rows.num_rows))
        else:
            with pytest.raises(DamageError, match="kept: the plan has an impossible entry"):
                rows.pieces(np.arange(rows.num_rows))


def test_a_plan_of_one_row_is_kept_and_opened(place: Place) -> None:
    store = write_store(place(), [5])
    made, opened = plan_of(store), plan_of(store)
    assert made.num_rows == opened.num_rows == 1
    assert opened.table.row_offsets.tolist() == [0, 1] and opened.find(0) == [(0, 0, 5)]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("seq_len", 1, MAX_CAPACITY - 1),
        ("block_docs", 1, 2**27),
        ("min_trained", 0, MAX_CAPACITY),
        ("threads", 0, 1024),
    ],
)
def test_packed_rows_take_the_ends_of_each_range_and_nothing_beyond(
    store: Store, name: str, least: int, most: int
) -> None:
    def packed(value: int) -> Packed:
        # Sequential: the other methods take memory, or time, for each token of a row.
        settings: dict[str, Any] = {"seq_len": 11, "packing": "sequential", name: value}
        return plan_packed(split=store["train"], **settings)

    assert packed(least).num_rows > 0
    if name == "min_trained":  # no document has so many targets, which is another error
        with pytest.raises(ConfigError, match="no document can be trained on"):
            packed(most)
    else:
        assert packed(most).num_rows > 0
    for beyond in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=f"{name} makes no sense .*{least:,} to {most:,}"):
            packed(beyond)


def test_a_piece_without_a_token_is_damage_for_whoever_asks(store: Store) -> None:
    whole = plan_of(store)
    last = len(whole.table.lengths) - 1
    document = int(whole.table.documents[last])
    rewrite(plan_folder(store) / "lengths", last, 0)
    damaged = plan_of(store)
    with pytest.raises(DamageError, match="lengths: the plan has an impossible entry"):
        damaged.pieces(np.arange(damaged.num_rows))
    with pytest.raises(DamageError, match="the plan has an impossible entry"):
        damaged.find(document)


def test_a_piece_behind_the_last_row_is_damage_of_the_rows(store: Store) -> None:
    whole = plan_of(store)
    last = len(whole.table.lengths) - 1
    document = int(whole.table.documents[last])
    assert whole.find(document)
    rewrite(plan_folder(store) / "row_offsets", -1, last)
    damaged = plan_of(store)
    with pytest.raises(DamageError, match="row_offsets: the plan has an impossible entry"):
        damaged.find(document)


def test_a_piece_that_ends_a_token_behind_the_split_is_damage(store: Store) -> None:
    whole = plan_of(store)
    num_tokens = store["train"].num_tokens
    ends = whole.table.positions + whole.table.lengths
    at = int(np.argmax(ends))
    assert ends[at] == num_tokens
    rewrite(plan_folder(store) / "positions", at, int(whole.table.positions[at]) + 1)
    damaged = plan_of(store)
    with pytest.raises(DamageError, match="positions: the plan has an impossible entry"):
        damaged.pieces(np.arange(damaged.num_rows))
    with pytest.raises(DamageError, match="positions: the plan has an impossible entry"):
        damaged.find(int(whole.table.documents[at]))


def test_a_plan_that_was_damaged_and_is_made_again_no_longer_stops_the_feed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(Source(name="a", path=store.path, rows="packed"), seq_len=11)
    expected = Feed(recipe).batch(0)
    file = plan_folder(store) / "flags"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    monkeypatch.setattr(verified, "AT_ONCE_BYTES", 10)  # the plan is verified in the background
    feed = Feed(recipe)
    for thread in threading.enumerate():
        if thread.name == "tokenreel-verify":
            thread.join()
    with pytest.raises(DamageError, match="remove the folder"):
        feed.batch(0)
    for column in file.parent.iterdir():
        column.unlink()
    file.parent.rmdir()
    assert np.array_equal(Feed(recipe).batch(0).input_ids, expected.input_ids)


def test_a_plan_of_just_the_size_that_is_read_at_once_is_read_and_verified_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of(store)
    folder = plan_folder(store)
    size = sum((folder / name).stat().st_size for name in COLUMNS)
    for at_once, is_read in ((size, True), (size - 1, False)):
        monkeypatch.setattr(verified, "AT_ONCE_BYTES", at_once)
        monkeypatch.setattr(verified, "_seen", set())
        plan = plan_of(store)
        assert plan.table.lengths.flags.owndata == is_read
    monkeypatch.setattr(verified, "AT_ONCE_BYTES", size)
    monkeypatch.setattr(verified, "_seen", set())
    (folder / "flags").write_bytes(bytes((folder / "flags").stat().st_size))
    with pytest.raises(DamageError, match="flags: the file fails its checksum"):
        open_plan(folder, {}, TABLE)


def test_a_column_that_vanishes_after_it_was_looked_at_is_damage(tmp_path: Path) -> None:
    file = ArrayFile(path=tmp_path / "lengths", dtype=COLUMNS["lengths"], count=3)
    with pytest.raises(DamageError, match="lengths: cannot be read: No such file or directory"):
        verified.load_columns([file], {"lengths": "0" * 64}, mode="mmap")


@pytest.mark.parametrize("hashed", [1, 8, 24, 1 << 22])
def test_a_mapped_column_is_verified_to_its_last_byte(
    store: Store, hashed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of(store)
    monkeypatch.setattr(verified, "HASHED_BYTES", hashed)
    file = plan_folder(store) / "positions"
    assert check_plan(file.parent) == []
    good = file.read_bytes()
    for at in (0, 7, 8, len(good) - 1):
        data = bytearray(good)
        data[at] ^= 1
        file.write_bytes(data)
        assert [problem.where for problem in check_plan(file.parent)] == [str(file)]
