"""Plans and the disk below: a power failure takes none that was made, a full disk moves none."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path

import pytest
from tests.faults.crashing import Crash, CrashingFileSystem
from tests.rows.corpora import Place, write_store
from tests.rows.planning import (
    FALLS,
    KINDS,
    LENGTHS,
    Observed,
    all_of,
    finished_plans,
    plan_of,
    rows_of,
    tree,
)

from tokenreel.errors import WriteError
from tokenreel.filesystem import FileSystem
from tokenreel.store.store import Store

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@pytest.fixture
def store(place: Place) -> Store:
    return write_store(place(), LENGTHS)


@pytest.mark.parametrize("policy", FALLS)
def test_a_plan_that_was_made_survives_a_power_failure(store: Store, policy: str) -> None:
    disk = CrashingFileSystem()
    plan_of(store, filesystem=disk)
    whole = tree(store.path / ".plans")
    disk.fall(policy, seed=0xFFFF)
    assert tree(store.path / ".plans") == whole


@pytest.mark.parametrize("policy", FALLS)
@pytest.mark.parametrize("back", [0, 1, 2])
def test_a_plan_whose_power_fails_at_its_rename_is_whole_or_not_there(
    store: Store, policy: str, back: int
) -> None:
    dry = CrashingFileSystem()
    plan_of(store, filesystem=dry)
    whole = tree(store.path / ".plans")
    assert dry.operations[-3:] == ["sync_dir", "rename", "sync_dir"]
    for seed in range(4):
        shutil.rmtree(store.path / ".plans")
        disk = CrashingFileSystem(len(dry.operations) - back)
        with pytest.raises(Crash):
            plan_of(store, filesystem=disk)
        disk.fall(policy, seed=seed)
        assert finished_plans(store.path) in ({}, whole), seed


@pytest.mark.parametrize("code", FULL)
def test_a_disk_that_is_full_beside_the_store_is_an_error_and_moves_no_plan(
    place: Place, store: Store, code: int
) -> None:
    with pytest.raises(WriteError) as caught:
        plan_of(store, filesystem=Observed(read_only=store.path, code=code))
    assert caught.value.where == str(store.path / ".plans")
    assert not (place.root / "cache").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_need_no_plan_are_made_in_memory_and_not_kept_elsewhere_when_the_disk_is_full(
    place: Place, chats: Store, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        rows = rows_of(chats, kind, filesystem=Observed(read_only=chats.path, code=errno.ENOSPC))
    assert rows.folder is None
    assert "the plan is not kept" in caplog.text and "No space left on device" in caplog.text
    assert not (place.root / "cache").exists()
    assert all_of(rows) == all_of(rows_of(chats, kind, cache=None))


def test_a_plan_that_cannot_be_renamed_is_not_tried_again(store: Store) -> None:
    disk = Unrenaming()
    with pytest.raises(WriteError):
        plan_of(store, filesystem=disk)
    assert disk.num_renames == 1  # what is in the way would have been put aside otherwise
    assert finished_plans(store.path) == {}


class Unrenaming(FileSystem):
    """A disk that fails whenever a folder is to get its name."""

    num_renames = 0

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        if operation == "rename" and path.is_dir():
            self.num_renames += 1
            raise OSError(errno.EIO, "Input/output error")
