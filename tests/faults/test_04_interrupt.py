"""Fault 4: Ctrl-C inside a writer whose target exists."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.building import (
    BOOKS,
    LEAFLETS,
    OTHER_BOOKS,
    SMALL,
    add_all,
    as_lists,
    build,
    leftovers,
    read_all,
)
from tests.store.independent import contents

from tokenreel import StoreWriter
from tokenreel.filesystem import FileSystem

ENDLESS = """
import sys
from tokenreel import StoreWriter
with StoreWriter(sys.argv[1], vocab_size=1000, shard_bytes=24, block_bytes=16, replace=True) as w:
    for number in range(10**9):
        w.add([number % 1000] * 11)
        if number == 20:
            print("begun", flush=True)
"""


def test_an_interrupt_in_the_block_propagates_and_leaves_the_old_store(tmp_path: Path) -> None:
    path = build(tmp_path / "books", OTHER_BOOKS)
    before = contents(path)
    with pytest.raises(KeyboardInterrupt), StoreWriter(path, replace=True, **SMALL) as writer:
        add_all(writer, BOOKS)
        raise KeyboardInterrupt
    assert contents(path) == before
    assert read_all(path) == as_lists(OTHER_BOOKS)
    assert not [name for name in leftovers(path) if name.endswith(".tmp")]


def test_an_interrupt_at_any_operation_leaves_the_old_store_or_the_new(memory_disk: Path) -> None:
    class Interrupting(FileSystem):
        """A signal arrives once, and unlike after a crash the handlers run."""

        def __init__(self, interrupt_at: int) -> None:
            self.remaining = interrupt_at

        def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
            self.remaining -= 1
            if self.remaining == 0:
                raise KeyboardInterrupt

    path = build(memory_disk / "books", OTHER_BOOKS)
    before = contents(path)
    for interrupt_at in range(1, 1000):
        filesystem = Interrupting(interrupt_at)
        try:
            build(path, LEAFLETS, replace=True, filesystem=filesystem)
        except KeyboardInterrupt:
            if read_all(path) == as_lists(OTHER_BOOKS):
                assert contents(path) == before
                assert not [name for name in leftovers(path) if name.endswith(".tmp")]
                continue
        assert read_all(path) == as_lists(LEAFLETS)
        break
    assert interrupt_at > 40


def test_a_real_signal_leaves_the_old_store(tmp_path: Path) -> None:
    path = build(tmp_path / "books", OTHER_BOOKS)
    before = contents(path)
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert contents(path) == before
    assert read_all(path) == as_lists(OTHER_BOOKS)
    assert leftovers(path) == [".build", ".build/plan.json"]
