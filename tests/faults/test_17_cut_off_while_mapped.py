"""Fault 17: a file cut off while it is mapped is an error of the batch that needs it, not a signal.

Everything runs in a process of its own, which must survive: were the guard gone, it would not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import native
from tokenreel.dropin.id_rows import IdRows
from tokenreel.errors import DamageError, LimitError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.layouts.convert import convert
from tokenreel.layouts.open_store import open_store
from tokenreel.rows import verified
from tokenreel.rows.windows import plan_windows
from tokenreel.testing import equal

pytestmark = pytest.mark.skipif(native.extension() is None, reason="the guard is the kernels'")
SOAK = pytest.mark.soak  # what a default run has a twin of
LENGTHS = [700, 31, 400, 90] * 50
ROWS = ("windows", "document_windows", "episodes", "packed")


def survives(work: Callable[[], None]) -> None:
    """Do something in a forked process, which must end by itself."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def unwatched(feed: Feed) -> Feed:
    """Keep the patrol from finding out first: the kernel must be the one that runs into it."""
    feed._batcher._watch._patrol._due = float("inf")
    return feed


def cut_off(path: Path, size: int = 0) -> Callable[[], None]:
    """Truncate a file and return what makes it whole again."""
    whole = path.read_bytes()
    os.truncate(path, size)

    def restore() -> None:
        with path.open("r+b") as file:
            file.write(whole)

    return restore


def loses(feed: Feed, path: Path, *, steps: int = 40) -> DamageError:
    """Return the error of the first batch that needs what is gone; it is of this file."""
    with pytest.raises(DamageError) as caught:
        for step in range(steps):
            feed.batch(step)
    assert caught.value.where == str(path)
    return caught.value


def recipe_for(path: Path, rows: str, **options: object) -> Recipe:
    return recipe_of(
        Source(name="a", path=path, rows=rows, **options),  # type: ignore[arg-type]
        seq_len=64,
        global_batch_size=32,
    )


@pytest.mark.parametrize("rows", ROWS)
def test_a_shard_cut_off_is_an_error_with_its_name_and_offset_and_can_be_restored(
    tmp_path: Path, rows: str
) -> None:
    write_store(tmp_path / "s", LENGTHS)
    path = tmp_path / "s" / "train" / "shard_00000.bin"
    feed = unwatched(Feed(recipe_for(tmp_path / "s", rows)))
    expected = feed.batch(0)

    def work() -> None:
        restore = cut_off(path, 8192)
        error = loses(feed, path)
        assert f"expected {122_100:,} bytes, got 8,192 bytes" in str(error)
        words = str(error).split("the page at offset ")[1].split()
        offset = int(words[0].replace(",", ""))
        assert 8192 <= offset < 122_100
        restore()
        assert equal(feed.batch(0), expected)

    survives(work)


@pytest.mark.parametrize(
    "sidecar", ["turns", *(pytest.param(name, marks=SOAK) for name in ("weights", "mask"))]
)
@pytest.mark.parametrize("rows", ["windows", pytest.param("packed", marks=SOAK)])
def test_turns_and_weights_that_are_cut_off_are_errors_too(
    tmp_path: Path, rows: str, sidecar: str
) -> None:
    write_store(tmp_path / "s", [40] * 3000, sidecar=sidecar, vocab_size=2**18)
    kind = "turns" if sidecar == "turns" else "weights"
    path = tmp_path / "s" / "train" / f"shard_00000.{kind}"
    feed = unwatched(Feed(recipe_for(tmp_path / "s", rows)))
    feed.batch(0)

    def work() -> None:
        cut_off(path)
        loses(feed, path)
        with pytest.raises(DamageError) as caught:
            feed.denominators(0)
        assert caught.value.where == str(path)

    survives(work)


@pytest.mark.parametrize(("rows", "column"), [("packed", "positions"), ("episodes", "start")])
def test_a_plan_cut_off_while_mapped_is_an_error_of_that_file(
    tmp_path: Path, rows: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "s", [9] * 4000)
    monkeypatch.setattr(verified, "AT_ONCE_BYTES", 100)  # so that it is mapped
    feed = unwatched(Feed(recipe_for(tmp_path / "s", rows)))
    for thread in threading.enumerate():
        if thread.name == "tokenreel-verify":
            thread.join()
    folder = feed.plans[0].folder
    assert folder is not None

    def work() -> None:
        cut_off(folder / column)
        loses(feed, folder / column)

    survives(work)


@pytest.mark.parametrize("mode", ["mmap", pytest.param("pread", marks=SOAK)])
@pytest.mark.parametrize("rows", ROWS[1:])
def test_a_plan_that_was_read_needs_its_files_no_more(tmp_path: Path, rows: str, mode: str) -> None:
    """Also what numpy looks up: which documents a step shows, and which steps a document."""
    write_store(tmp_path / "s", LENGTHS, sidecar="turns")
    feed = Feed(recipe_for(tmp_path / "s", rows, mode=mode))
    expected, explained = feed.batch(3), feed.explain(3)
    folder = feed.plans[0].folder
    assert folder is not None

    def work() -> None:
        for file in folder.iterdir():
            cut_off(file)
        assert equal(feed.batch(3), expected)
        assert feed.explain(3) == explained
        assert feed.where("a", 2, stop_step=4) is not None

    survives(work)


def test_a_store_read_by_pread_maps_nothing_at_all(tmp_path: Path) -> None:
    write_store(tmp_path / "s", LENGTHS, sidecar="turns", shard_tokens=10**4)
    for rows in ROWS:
        feed = Feed(recipe_for(tmp_path / "s", rows, mode="pread"))
        feed.batch(0), feed.explain(0), feed.denominators(0)
        mapped = Path("/proc/self/maps").read_text()
        assert str(tmp_path) not in mapped


def test_helpers_that_run_into_it_stop_and_help_again(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [300_001], vocab_size=2**20)
    path = tmp_path / "s" / "train" / "shard_00000.bin"
    source = Source(name="a", path=tmp_path / "s")
    feed = unwatched(Feed(recipe_of(source, seq_len=512, global_batch_size=512), threads=3))
    expected = feed.batch(0)

    def work() -> None:
        for _ in range(20):
            restore = cut_off(path, 4096)
            loses(feed, path, steps=1)
            restore()
            assert equal(feed.batch(0), expected)

    survives(work)


def test_threads_that_make_batches_each_get_the_error(tmp_path: Path) -> None:
    write_store(tmp_path / "s", LENGTHS)
    path = tmp_path / "s" / "train" / "shard_00000.bin"
    feed = unwatched(Feed(recipe_for(tmp_path / "s", "packed")))
    feed.batch(0)

    def work() -> None:
        cut_off(path)
        errors: list[BaseException] = []

        def make() -> None:
            try:
                feed.batch(1)
            except DamageError as error:
                errors.append(error)

        callers = [threading.Thread(target=make) for _ in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert len(errors) == 8
        with pytest.raises(DamageError):
            for _ in feed.stream(prefetch=2):
                pass

    survives(work)


def test_rows_of_ids_alone_and_rows_gathered_by_steps_are_guarded_too(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [20_000])
    path = tmp_path / "s" / "train" / "shard_00000.bin"
    split = open_store(tmp_path / "s")["train"]
    plan = plan_windows(split=split, seq_len=64)
    pieces = plan.pieces(np.arange(plan.num_rows))
    rows = IdRows(split, 64)
    rows.gather(pieces)
    feed = Feed(recipe_for(tmp_path / "s", "windows"))
    memory = feed._batcher.memory(32)
    seats = np.arange(32)
    feed._batcher._assembler.fill_by_steps(0, seats, memory)

    def work() -> None:
        cut_off(path)
        for make in (
            lambda: rows.gather(pieces),
            lambda: feed._batcher._assembler.fill_by_steps(0, seats, memory),
        ):
            with pytest.raises(DamageError) as caught:
                make()
            assert caught.value.where == str(path)

    survives(work)


def test_memory_for_a_batch_that_cannot_be_had_is_told_from_damage(tmp_path: Path) -> None:
    """Shared memory that is full ends a process in the same way."""
    write_store(tmp_path / "s", [20_000])
    feed = Feed(recipe_for(tmp_path / "s", "windows"))
    np.zeros((32, 64), np.int64).tofile(tmp_path / "shared")
    shared = np.memmap(tmp_path / "shared", np.int64, "r+", shape=(32, 64))
    memory = feed._batcher.memory(32)
    memory.input_ids = shared

    def work() -> None:
        cut_off(tmp_path / "shared")
        with pytest.raises(LimitError, match="the memory that a batch is written to cannot be had"):
            feed._batcher._assembler.fill_plain(0, np.arange(32), memory)

    survives(work)


OTHERS = """
import faulthandler, os, signal, sys, time
from tokenreel import Feed, Recipe, Source
from tokenreel.errors import DamageError
path, order, end = sys.argv[1:]
shard = path + "/train/shard_00000.bin"
if order == "before":
    faulthandler.enable()
feed = Feed(Recipe(seq_len=64, global_batch_size=32, sources=[Source(name="a", path=path)]))
feed.batch(0)
tokens = feed.plans[0].split.shards[0].tokens
if order == "after":
    faulthandler.enable()
    time.sleep(0.05)  # whose handler is on top is looked at every few milliseconds
whole = open(shard, "rb").read()
feed._batcher._watch._patrol._due = float("inf")
os.truncate(shard, 0)
try:
    for step in range(40):
        feed.batch(step)
except DamageError:
    print("damage", flush=True)
if end == "sent":
    os.kill(os.getpid(), signal.SIGBUS)
elif end == "read":
    print(tokens.sum())
"""


@pytest.mark.parametrize("end", ["sent", pytest.param("read", marks=SOAK)])
@pytest.mark.parametrize("order", ["never", "before", "after"])
def test_a_fault_that_is_not_the_kernels_goes_to_the_handler_that_was_there(
    tmp_path: Path, order: str, end: str
) -> None:
    """faulthandler's says where it was, once, and not for the fault that became an error."""
    write_store(tmp_path / "s", LENGTHS)
    done = subprocess.run(
        [sys.executable, "-c", OTHERS, str(tmp_path / "s"), order, end],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "damage\n"
    assert done.returncode == -signal.SIGBUS
    told = 0 if order == "never" else 1
    assert done.stderr.count("Fatal Python error: Bus error") == told


WORKER = """
import os, sys, torch
from tokenreel import Feed, Recipe, Source
from tokenreel.errors import DamageError

class Batches(torch.utils.data.Dataset):
    def __init__(self, path):
        sources = [Source(name="a", path=path)]
        self.feed = Feed(Recipe(seq_len=64, global_batch_size=32, sources=sources))
        self.feed.batch(0)
        self.feed._batcher._watch._patrol._due = float("inf")
        self.shard = path + "/train/shard_00000.bin"
    def __len__(self):
        return 40
    def __getitem__(self, step):
        os.truncate(self.shard, 0)
        return self.feed.batch(step).input_ids

try:
    list(torch.utils.data.DataLoader(Batches(sys.argv[1]), num_workers=1, batch_size=None))
except Exception as error:
    print(type(error).__name__, "the file was cut off while it was mapped" in str(error))
"""


@pytest.mark.soak
def test_in_a_worker_of_torch_whose_own_handler_would_end_it(tmp_path: Path) -> None:
    write_store(tmp_path / "s", LENGTHS)
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "DamageError True\n", done.stderr


@pytest.mark.parametrize(
    "sidecar", ["turns", *(pytest.param(name, marks=SOAK) for name in ("weights", "mask"))]
)
@pytest.mark.parametrize("rows", ROWS)
def test_an_evaluation_in_the_order_of_the_store_does_not_die_of_a_sidecar(
    tmp_path: Path, rows: str, sidecar: str
) -> None:
    write_store(tmp_path / "s", [40] * 600, sidecar=sidecar, vocab_size=2**18)
    source = Source(name="a", path=tmp_path / "s", rows=rows, shuffle=False)  # type: ignore[arg-type]
    feed = unwatched(Feed(recipe_of(source, seq_len=64, global_batch_size=32, passes=1)))
    feed.batch(0)
    suffix = "turns" if sidecar == "turns" else "weights"
    path = tmp_path / "s" / "train" / f"shard_00000.{suffix}"

    def work() -> None:
        cut_off(path)
        loses(feed, path, steps=len(feed))

    survives(work)


@pytest.mark.parametrize("extra", [[], ["document_ids"]])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_foreign_index_that_is_cut_off_is_an_error_of_what_asks_it(
    tmp_path: Path, extra: list[str], shuffle: bool
) -> None:
    write_store(tmp_path / "s", [40] * 1500)
    convert(tmp_path / "s", tmp_path / "m", to="megatron")
    source = Source(name="a", path=tmp_path / "m", rows="document_windows", shuffle=shuffle)
    feed = unwatched(Feed(recipe_of(source, seq_len=64, global_batch_size=32, passes=1)))
    feed.batch(0, extra=extra)

    def work() -> None:
        cut_off(tmp_path / "m" / "train.idx")
        with suppress(DamageError):
            for step in range(len(feed)):
                feed.batch(step, extra=extra)

    survives(work)
