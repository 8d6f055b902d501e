"""Plans on disk: opened at once, whole or not there, made again when damaged."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.crashing import Crash, CrashingFileSystem
from tests.rows.corpora import Place, make_turns, read_rows, write_store
from tests.rows.planning import (
    FALLS,
    LENGTHS,
    FullAfter,
    Observed,
    finished_plans,
    plan_folder,
    plan_of,
    tree,
    vouch,
)

from tokenreel import Feed, Recipe, Source, open_store
from tokenreel.errors import ConfigError, DamageError, FormatError, WriteError
from tokenreel.inspect.verify import verify_store
from tokenreel.rows import verified
from tokenreel.rows.packed import plan_packed
from tokenreel.rows.plan_cache import plan_cache
from tokenreel.rows.plan_file import HEADER, check_plan, open_plan
from tokenreel.rows.plan_table import COLUMNS, TABLE
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.store import Store


@pytest.fixture
def store(place: Place) -> Store:
    return write_store(place(), LENGTHS)


def test_a_stored_plan_is_the_plan(store: Store) -> None:
    made, opened = plan_of(store), plan_of(store)
    kept = plan_packed(split=store["train"], seq_len=11, block_docs=3)
    assert made.ledger == opened.ledger == kept.ledger
    assert read_rows(made) == read_rows(opened) == read_rows(kept)
    for name, kind in COLUMNS.items():
        assert getattr(opened.table, name).dtype == kind
        np.testing.assert_array_equal(getattr(opened.table, name), getattr(kept.table, name))
    assert [opened.find(number) for number in range(10)] == [
        kept.find(number) for number in range(10)
    ]


def test_the_second_time_nothing_is_written(store: Store) -> None:
    plan_of(store)
    again = Observed()
    plan_of(open_store(store.path), filesystem=again)
    assert again.operations == []


@pytest.mark.parametrize("mode", ["mmap", "pread"])
@pytest.mark.parametrize("at_once", [verified.AT_ONCE_BYTES, 10])
def test_only_a_large_plan_is_mapped_and_none_where_the_store_is_not(
    store: Store, mode: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "AT_ONCE_BYTES", at_once)
    plan = plan_of(open_store(store.path, mode=mode))
    is_mapped = mode == "mmap" and at_once == 10
    for name in COLUMNS:
        column = getattr(plan.table, name)
        assert column.flags.owndata != is_mapped
        assert column.tobytes() == (plan_folder(store) / name).read_bytes()


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_a_large_plan_is_verified_in_the_background_and_its_damage_stops_the_feed(
    store: Store, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(name="a", path=store.path, rows="packed", mode=mode)  # type: ignore[arg-type]
    recipe = Recipe(seq_len=11, global_batch_size=2, sources=[source])
    Feed(recipe)
    damage_content(plan_folder(store))
    monkeypatch.setattr(verified, "AT_ONCE_BYTES", 10)
    feed = Feed(recipe)
    for thread in threading.enumerate():
        if thread.name == "tokenreel-verify":
            thread.join()
    with pytest.raises(DamageError, match=r"positions: the file fails its checksum .*; remove"):
        feed.batch(0)
    assert "positions: the file fails its checksum" in caplog.text


def test_a_large_plan_is_verified_once_in_a_process_and_again_when_it_was_touched(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(verified, "_do_later", lambda check, files: [check(f) for f in files])
    plan_of(store)
    plan_of(store)
    hashed: list[str] = []
    compare = verified.compare

    def note(actual: str, expected: str, file: ArrayFile) -> None:
        hashed.append(actual)
        compare(actual, expected, file)

    monkeypatch.setattr(verified, "compare", note)
    plan_of(store)
    assert hashed == []
    os.utime(plan_folder(store) / "lengths")
    plan_of(store)
    assert len(hashed) == 1


def test_each_setting_has_a_plan_of_its_own(store: Store) -> None:
    for options in ({}, {"seq_len": 12}, {"packing": "first_fit"}, {"truncation": "keep_last"}):
        plan_of(store, **options)
    plan_of(store, threads=3)
    assert len(list((store.path / ".plans").iterdir())) == 4


def test_a_plan_moves_with_its_store_and_not_to_another(place: Place, store: Store) -> None:
    plan_of(store)
    moved = place()
    shutil.move(store.path, moved)
    quiet = Observed()
    plan_of(open_store(moved), filesystem=quiet)
    assert quiet.operations == []
    other = write_store(place(), [*LENGTHS, 5])
    shutil.copytree(moved / ".plans", other.path / ".plans")
    assert plan_of(other).ledger["documents"] == 11


def test_the_bytes_do_not_depend_on_threads(place: Place) -> None:
    stores = [write_store(place(), LENGTHS) for _ in range(2)]
    for store, threads in zip(stores, (1, 3), strict=True):
        plan_of(store, threads=threads)
    assert tree(stores[0].path / ".plans") == tree(stores[1].path / ".plans")


def test_verify_does_not_mind_plans(store: Store) -> None:
    plan_of(store)
    report = verify_store(store.path)
    assert report.ok
    assert not any("plans" in note for note in report.notes)


def test_plans_of_chats_keep_both_pieces(place: Place) -> None:
    spec = [("system", 3, 1, 0, 0.0), ("user", 9, 1, 0, 0.0), ("assistant", 4, 1, 0, 1.0)]
    spec += [("user", 2, 1, 0, 0.0), ("assistant", 3, 1, 0, 1.0)]
    store = write_store(place(), [21], turns=[make_turns(spec)], shard_bytes=140)
    plan_of(store)
    assert plan_of(store).pieces(np.arange(1)).first.tolist() == [True, False]


@pytest.mark.parametrize("code", [30, 13, 1])
def test_a_read_only_store_is_planned_in_the_cache_folder(
    place: Place, store: Store, code: int
) -> None:
    plan = plan_of(store, filesystem=Observed(read_only=store.path, code=code))
    assert not (store.path / ".plans").exists()
    (folder,) = (place.root / "cache" / "tokenreel" / "plans").iterdir()
    assert check_plan(folder) == []
    again = Observed(read_only=store.path)
    assert read_rows(plan_of(store, filesystem=again)) == read_rows(plan)
    assert again.operations == []


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root")
def test_a_folder_without_permission_is_planned_in_the_cache_folder(
    place: Place, store: Store
) -> None:
    store.path.chmod(0o555)
    try:
        plan_of(store)
    finally:
        store.path.chmod(0o755)
    assert (place.root / "cache" / "tokenreel" / "plans").is_dir()


def test_without_the_variable_the_cache_folder_is_in_the_home(
    place: Place, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(place.root))
    assert plan_cache(store).folders[1] == place.root / ".cache" / "tokenreel" / "plans"


def test_a_full_disk_is_an_error_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(WriteError, match="No space left on device"):
        plan_of(store, filesystem=FullAfter(8))
    assert list((store.path / ".plans").iterdir()) == []


def test_nothing_is_left_of_a_plan_without_rows(store: Store) -> None:
    with pytest.raises(ConfigError, match="no document can be trained on"):
        plan_of(store, min_trained=99)
    assert list((store.path / ".plans").iterdir()) == []


def test_a_crash_at_any_operation_leaves_no_half_plan(place: Place, store: Store) -> None:
    kept = read_rows(plan_packed(split=store["train"], seq_len=11, block_docs=3))
    dry = CrashingFileSystem()
    plan_of(store, filesystem=dry)
    whole = tree(store.path / ".plans")
    assert len(dry.operations) > 20
    for crash_at in range(1, len(dry.operations) + 1):
        for policy in FALLS[crash_at % 2 :: 2]:
            shutil.rmtree(store.path / ".plans", ignore_errors=True)
            disk = CrashingFileSystem(crash_at)
            with pytest.raises(Crash):
                plan_of(store, filesystem=disk)
            disk.fall(policy, seed=crash_at)
            finished = finished_plans(store.path)
            assert finished in ({}, whole), (crash_at, policy)
            plan = plan_of(store)
            assert finished_plans(store.path) == whole
            assert plan.num_rows == len(kept)
    assert read_rows(plan_of(store)) == kept


def leave_behind(folder: Path) -> None:
    """Leave what planners that were killed would: one three days ago, one just now."""
    for name in ("old.1.tmp", "young.2.tmp"):
        (folder / name).mkdir(parents=True)
        (folder / name / "documents").write_bytes(b"half")
    day = 24 * 3600
    for name, age in (("old.1.tmp", day + 5), ("young.2.tmp", day - 300)):
        then = time.time() - age
        os.utime(folder / name, (then, then))


def test_leftovers_of_killed_planners_go_at_once(store: Store) -> None:
    leave_behind(store.path / ".plans")
    plan_of(store)
    assert list(store.path.glob(".plans/*.tmp")) == []


def test_what_a_living_planner_writes_stays(store: Store) -> None:
    folder = store.path / ".plans"
    leave_behind(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as one does that is planning
    waiting = threading.Thread(target=plan_of, args=(store,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert len(list(folder.glob("*.tmp"))) == 2
    os.close(descriptor)
    waiting.join()
    assert list(folder.glob("*.tmp")) == []


def test_a_planner_without_standard_input_lets_the_next_one_in(store: Store) -> None:
    kept = os.dup(0)
    os.close(0)  # as for a service: the first file that is opened is number 0
    try:
        plan_of(store)
        with pytest.raises(OSError):
            os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_where_nobody_can_lock_leftovers_go_after_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    leave_behind(store.path / ".plans")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    plan_of(store)
    assert [path.name for path in store.path.glob(".plans/*.tmp")] == ["young.2.tmp"]


def damage_truncated(folder: Path) -> None:
    with (folder / "documents").open("r+b") as file:
        file.truncate(5)


def damage_longer(folder: Path) -> None:
    with (folder / "flags").open("ab") as file:
        file.write(b"\0")


def damage_missing(folder: Path) -> None:
    (folder / "lengths").unlink()


def damage_header_bit(folder: Path) -> None:
    data = bytearray((folder / HEADER).read_bytes())
    at = data.index(b'"padding":') + len(b'"padding":')
    data[at] ^= 1
    (folder / HEADER).write_bytes(data)


def damage_header_missing(folder: Path) -> None:
    (folder / HEADER).unlink()


def damage_header_empty(folder: Path) -> None:
    (folder / HEADER).write_bytes(b"")


def damage_content(folder: Path) -> None:
    data = bytearray((folder / "positions").read_bytes())
    data[8] ^= 1
    (folder / "positions").write_bytes(data)


DAMAGES = [
    damage_content,
    damage_truncated,
    damage_longer,
    damage_missing,
    damage_header_bit,
    damage_header_missing,
    damage_header_empty,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_is_noticed_at_open_and_made_again(
    store: Store, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plan_of(store)
    folder = plan_folder(store)
    whole = tree(folder)
    damage(folder)
    assert check_plan(folder) != []
    with caplog.at_level(logging.WARNING):
        plan_of(store)
    assert "a damaged plan is made again" in caplog.text
    assert str(folder) in caplog.text
    assert tree(plan_folder(store)) == whole


@pytest.mark.parametrize("name", [*COLUMNS, HEADER])
def test_any_flipped_bit_is_found_by_the_full_check(store: Store, name: str) -> None:
    plan_of(store)
    file = plan_folder(store) / name
    good = file.read_bytes()
    assert check_plan(file.parent) == []
    for bit in range(0, 8 * len(good), 13):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        problems = check_plan(file.parent)
        assert len(problems) == 1
        assert str(problems[0]).startswith(str(file))
    assert isinstance(problems[0], DamageError | FormatError)


def test_a_plan_of_something_else_is_not_opened(store: Store) -> None:
    plan_of(store)
    folder = plan_folder(store)
    header = json.loads((folder / HEADER).read_text())
    identity = {name: header[name] for name in ("format", "version", "fingerprint", "split")}
    open_plan(folder, identity, TABLE)
    with pytest.raises(FormatError, match=r"plan of something else: split \(expected val, got tra"):
        open_plan(folder, {**identity, "split": "val"}, TABLE)


def test_a_plan_in_use_survives_its_replacement(store: Store) -> None:
    plan = plan_of(store)
    rows = read_rows(plan)
    damage_header_empty(plan_folder(store))
    plan_of(store)
    assert read_rows(plan) == rows


@pytest.mark.parametrize("name", ["lengths", "flags", "row_offsets"])
def test_columns_that_make_no_table_are_refused_though_the_header_vouches_for_them(
    store: Store, name: str
) -> None:
    plan_of(store)
    folder = plan_folder(store)
    (folder / name).write_bytes((folder / name).read_bytes()[: COLUMNS[name].itemsize])
    vouch(folder)
    with pytest.raises(DamageError, match=r"the columns make no table .*as many pieces in every"):
        open_plan(folder, {}, TABLE)


@pytest.mark.parametrize("name", ["row_offsets", "positions", "lengths"])
@pytest.mark.parametrize("bad", [-1, 2**31 - 1])
def test_an_impossible_row_is_damage_and_says_what_to_do(store: Store, name: str, bad: int) -> None:
    plan_of(store)
    file = plan_folder(store) / name
    column = np.fromfile(file, COLUMNS[name])
    column[1:] = bad
    column.tofile(file)
    vouch(file.parent)
    damaged = plan_of(store)
    with pytest.raises(DamageError, match=r"impossible entry; remove the folder \.plans"):
        damaged.pieces(np.arange(damaged.num_rows))


@pytest.mark.parametrize("bad", [-1, -(2**62), 2**31])
def test_an_impossible_way_back_is_damage_of_that_file(store: Store, bad: int) -> None:
    plan_of(store)
    file = plan_folder(store) / "by_document"
    column = np.fromfile(file, COLUMNS["by_document"])
    column[:] = bad
    column.tofile(file)
    vouch(file.parent)
    damaged = plan_of(store)
    for document in range(len(LENGTHS)):
        with pytest.raises(DamageError) as caught:
            damaged.find(document)
        assert caught.value.where == str(file)
        assert "the plan has an impossible entry; remove the folder .plans/" in str(caught.value)


def test_one_wrong_entry_of_the_way_back_hides_no_document_silently(store: Store) -> None:
    plan = plan_of(store)
    whole = [plan.find(number) for number in range(len(LENGTHS))]
    file = plan_folder(store) / "by_document"
    good = np.fromfile(file, COLUMNS["by_document"])
    for at in range(len(good)):
        column = good.copy()
        column[at] = len(good) + 5
        column.tofile(file)
        vouch(file.parent)
        damaged = plan_of(store)
        for number, expected in enumerate(whole):
            try:
                assert damaged.find(number) == expected
            except DamageError as error:
                assert error.where == str(file)
