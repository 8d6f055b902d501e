"""Several planners of one plan: one works, the others wait, and all end with the same bytes."""

from __future__ import annotations

import errno
import fcntl
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.rows.corpora import Place, write_store
from tests.rows.planning import (
    LENGTHS,
    FullAfter,
    Observed,
    plan_folder,
    plan_of,
    said_by_three,
    tree,
)

from tokenreel.errors import WriteError
from tokenreel.filesystem import FileSystem
from tokenreel.rows.plan_file import check_plan
from tokenreel.rows.plan_table import COLUMNS
from tokenreel.store.store import Store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    place = Place()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    yield write_store(place(), LENGTHS)
    place.remove()


def test_of_planners_at_the_same_time_one_plans_and_the_others_wait(store: Store) -> None:
    disk = Observed()
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda _: plan_of(store, filesystem=disk).num_rows, range(4)))
    assert len(plans) == 4
    assert len(set(plans)) == 1
    assert disk.operations.count("create") == len(COLUMNS) + 1


def test_a_planner_that_fails_lets_the_next_one_try(store: Store) -> None:
    with pytest.raises(WriteError, match="No space left on device"):
        plan_of(store, filesystem=FullAfter(8))
    with ThreadPoolExecutor(1) as pool:  # who waited for a lock that stays would wait for ever
        assert pool.submit(plan_of, store).result(timeout=30).num_rows > 0


def test_planners_that_no_lock_keeps_apart_end_with_one_plan(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of(store)
    whole = tree(store.path / ".plans")
    shutil.rmtree(store.path / ".plans")
    meeting = Meeting(3)

    def without_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(lambda _: plan_of(store, filesystem=meeting).num_rows, range(3)))
    assert len(rows) == 3
    assert tree(store.path / ".plans") == whole


class Meeting(FileSystem):
    """Let nobody give a plan its name before all have written theirs."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=30)

    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        if operation == "rename" and path.is_dir():
            self._barrier.wait()


def test_processes_at_the_same_time_end_with_one_plan(store: Store) -> None:
    program = (
        "import sys, tokenreel\n"
        "from tokenreel.rows.packed import plan_packed\n"
        "from tokenreel.rows.plan_cache import plan_cache\n"
        "store = tokenreel.open_store(sys.argv[1])\n"
        "plan = plan_packed(store['train'], 11, block_docs=3, cache=plan_cache(store))\n"
        "print(plan.num_rows)\n"
    )
    assert int(said_by_three(program, store)) == plan_of(store).num_rows
    assert check_plan(plan_folder(store)) == []
