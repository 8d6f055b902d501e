"""Kept windows and episodes that were damaged, or whose disk failed while they were written."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.crashing import Crash, CrashingFileSystem
from tests.feed.making import recipe_of
from tests.rows.planning import (
    CHAT_LENGTHS,
    FALLS,
    KINDS,
    all_of,
    finished_plans,
    plan_folder,
    rows_of,
    tree,
    vouch,
)

from tokenreel.canonical import canonical_bytes, digest
from tokenreel.errors import DamageError, FormatError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.inspect.verify import verify_store
from tokenreel.rows.kinds import Rows
from tokenreel.rows.plan_file import HEADER, check_plan, open_plan
from tokenreel.rows.windows import KEPT
from tokenreel.store.store import Store

COLUMN = {"windows": "kept", "document_windows": "kept", "episodes": "length"}


def damage_truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 8)


def damage_emptied(file: Path) -> None:
    os.truncate(file, 0)


def damage_longer(file: Path) -> None:
    with file.open("ab") as output:
        output.write(bytes(8))


def damage_missing(file: Path) -> None:
    file.unlink()


def damage_ledger(file: Path) -> None:
    header = file.with_name(HEADER)
    data = bytearray(header.read_bytes())
    data[data.index(b'"trained":') + len(b'"trained":')] ^= 1
    header.write_bytes(data)


def damage_shortened_with_its_header(file: Path) -> None:
    """Nothing is left of the column, and the header vouches for that."""
    os.truncate(file, 0)
    vouch(file.parent)


def damage_content(file: Path) -> None:
    """A byte is another: sizes and header are as they were."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


DAMAGES = [
    damage_truncated,
    damage_emptied,
    damage_longer,
    damage_missing,
    damage_ledger,
    damage_shortened_with_its_header,
    damage_content,
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_rows_are_noticed_at_open_and_found_again(
    chats: Store, kind: str, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    whole = all_of(rows_of(chats, kind))
    folder = plan_folder(chats)
    files = tree(folder)
    damage(folder / COLUMN[kind])
    with caplog.at_level(logging.WARNING):
        again = rows_of(chats, kind)
    assert "a damaged plan is made again" in caplog.text
    assert str(folder) in caplog.text
    assert all_of(again) == whole
    assert tree(plan_folder(chats)) == files


@pytest.mark.parametrize("kind", KINDS)
def test_any_flipped_bit_is_found_by_verify(chats: Store, kind: str) -> None:
    rows_of(chats, kind)
    folder = plan_folder(chats)
    assert verify_store(chats.path).ok
    for file in sorted(folder.iterdir()):
        good = file.read_bytes()
        for bit in range(0, 8 * len(good), 61):
            data = bytearray(good)
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            assert [problem.where for problem in check_plan(folder)] == [str(file)]
        assert [problem.where for problem in verify_store(chats.path).problems] == [str(file)]
        file.write_bytes(good)


def test_a_plan_of_other_columns_is_refused_though_its_header_vouches_for_them(
    chats: Store,
) -> None:
    rows_of(chats, "episodes")
    folder = plan_folder(chats)
    with pytest.raises(FormatError, match=r"there is no column '\w+' in such a plan \(expected ke"):
        open_plan(folder, {}, KEPT)
    header = json.loads((folder / HEADER).read_text())
    header["files"]["../../manifest.json"] = header["files"]["length"]
    del header["sha256"]
    (folder / HEADER).write_bytes(canonical_bytes({**header, "sha256": digest(header)}))
    (problem,) = check_plan(folder)
    assert "there is no column '../../manifest.json' in such a plan" in str(problem)


# The last two leave int64 when they are multiplied by the length of a window.
WILD = (-1, -(2**40), 2**31 - 1, 2**40, 2**62, -(2**63))


@pytest.mark.parametrize("bad", WILD)
@pytest.mark.parametrize("kind", ["windows", "document_windows"])
def test_a_kept_window_that_cannot_be_is_damage_of_that_file(
    chats: Store, kind: Rows, bad: int
) -> None:
    rows_of(chats, kind)
    file = plan_folder(chats) / "kept"
    column = np.fromfile(file, "<i8")
    half = len(column) // 2
    column[half:] = bad
    column.tofile(file)
    vouch(file.parent)
    damaged = rows_of(chats, kind)
    message = "kept: the plan has an impossible entry; remove the folder .plans/"
    damaged.pieces(np.arange(half))
    with pytest.raises(DamageError) as caught:
        damaged.pieces(np.arange(damaged.num_rows))
    assert message in str(caught.value)
    assert caught.value.where == str(file)
    source = Source(name="a", path=chats.path, rows=kind, shuffle=False)
    feed = Feed(recipe_of(source, seq_len=5, global_batch_size=half))
    feed.batch(0)
    with pytest.raises(DamageError) as caught:
        feed.batch(1)
    assert caught.value.where == str(file)


def test_a_kept_window_of_another_document_is_not_given_out(chats: Store) -> None:
    whole = rows_of(chats, "windows")
    file = plan_folder(chats) / "kept"
    np.flip(np.fromfile(file, "<i8")).tofile(file)
    vouch(file.parent)
    damaged = rows_of(chats, "windows")
    for number in range(len(CHAT_LENGTHS)):
        try:
            hits = damaged.find(number)
        except DamageError as error:
            assert error.where == str(file)
        else:
            assert hits == [] or set(hits) <= set(whole.find(number))


@pytest.mark.parametrize("bad", [-1, 2**31 - 1])
@pytest.mark.parametrize("name", ["start", "length"])
def test_an_episode_that_cannot_be_is_damage_of_that_file(
    chats: Store, name: str, bad: int
) -> None:
    rows_of(chats, "episodes")
    file = plan_folder(chats) / name
    column = np.fromfile(file, {"start": "<i8", "length": "<u4"}[name])
    column[:] = np.array(bad).astype(column.dtype)
    column.tofile(file)
    vouch(file.parent)
    damaged = rows_of(chats, "episodes")
    with pytest.raises(DamageError, match="the plan has an impossible entry") as caught:
        damaged.pieces(np.arange(damaged.num_rows))
    assert str(caught.value.where).startswith(str(file.parent))
    with pytest.raises(DamageError, match="the plan has an impossible entry"):
        damaged.find(int(damaged.segments.document[0]))  # type: ignore[union-attr]
    feed = Feed(recipe_of(Source(name="a", path=chats.path, rows="episodes"), seq_len=5))
    with pytest.raises(DamageError, match="the plan has an impossible entry"):
        feed.batch(0)


@pytest.mark.parametrize("kind", ["windows", "episodes"])
def test_a_crash_at_any_operation_leaves_no_half_plan(chats: Store, kind: str) -> None:
    found = all_of(rows_of(chats, kind, cache=None))
    dry = CrashingFileSystem()
    rows_of(chats, kind, filesystem=dry)
    whole = tree(chats.path / ".plans")
    assert len(dry.operations) > 10
    for crash_at in range(1, len(dry.operations) + 1):
        for policy in FALLS[crash_at % 2 :: 2]:
            shutil.rmtree(chats.path / ".plans", ignore_errors=True)
            disk = CrashingFileSystem(crash_at)
            with pytest.raises(Crash):
                rows_of(chats, kind, filesystem=disk)
            disk.fall(policy, seed=crash_at)
            assert finished_plans(chats.path) in ({}, whole), (crash_at, policy)
            assert all_of(rows_of(chats, kind)) == found
            assert finished_plans(chats.path) == whole


def test_an_episode_without_a_token_is_damage_of_its_length(chats: Store) -> None:
    rows_of(chats, "episodes")
    file = plan_folder(chats) / "length"
    column = np.fromfile(file, "<u4")
    column[-1] = 0
    column.tofile(file)
    vouch(file.parent)
    damaged = rows_of(chats, "episodes")
    damaged.pieces(np.arange(damaged.num_rows - 1))
    with pytest.raises(DamageError, match="length: the plan has an impossible entry") as caught:
        damaged.pieces(np.arange(damaged.num_rows))
    assert caught.value.where == str(file)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_changed_in_place_is_noticed_by_the_process_that_saw_it_whole(
    chats: Store, kind: str
) -> None:
    whole = all_of(rows_of(chats, kind))
    file = plan_folder(chats) / COLUMN[kind]
    before, data = file.stat(), bytearray(file.read_bytes())
    data[0] ^= 1
    with file.open("r+b") as opened:
        opened.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert all_of(rows_of(chats, kind)) == whole
