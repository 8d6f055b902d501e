"""Mapped files: no descriptor each, let go beyond a limit, and a shortage told from damage."""

from __future__ import annotations

import errno
import gc
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import native
from tokenreel.errors import DamageError, LimitError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.layouts.open_store import open_store
from tokenreel.store import mappings
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.mappings import MAPPINGS, Mappings, with_descriptor
from tokenreel.testing import equal

SOAK = pytest.mark.soak
needs_kernels = pytest.mark.skipif(native.extension() is None, reason="maps without the kernels")
ROWS = ("windows", "document_windows", "episodes", "packed")

MANY = """
import resource, sys
import numpy as np
from tokenreel import Feed, Recipe, Source
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
path, num_files, tokens_each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
source = Source(name="a", path=path, dtype="uint32", shuffle=False)
feed = Feed(Recipe(seq_len=tokens_each, global_batch_size=100, sources=[source]))
shown = [feed.batch(step).input_ids.ravel() for step in range(num_files // 100)]
print(bool((np.concatenate(shown) == np.arange(num_files * tokens_each)).all()))
print(sum(1 for line in open("/proc/self/maps") if path in line))
"""


def write_files(folder: Path, num_files: int, tokens_each: int) -> None:
    folder.mkdir()
    tokens = np.arange(num_files * tokens_each, dtype="<u4").reshape(num_files, tokens_each)
    for number, ids in enumerate(tokens):
        with (folder / f"{number:06d}.bin").open("wb", buffering=0) as file:
            file.write(ids.data)


class Keeper:
    """Knows what it was asked to let go."""

    def __init__(self) -> None:
        self.gone: list[AbstractSet[Hashable]] = []

    def let_go(self, keys: AbstractSet[Hashable]) -> None:
        """Keep the keys."""
        self.gone.append(keys)


def test_what_was_kept_last_stays_though_it_is_too_much_by_itself() -> None:
    held, keeper = Mappings(), Keeper()
    held.limit = 4
    held.keep(keeper, "large", num_files=9)
    assert keeper.gone == []
    held.keep(keeper, "small")
    assert keeper.gone == [{"large"}]
    for number in range(3):
        held.keep(keeper, number)
    assert keeper.gone == [{"large"}], "four are not too many"
    held.keep(keeper, 3)
    assert keeper.gone == [{"large"}, {"small"}]


def test_half_of_what_is_kept_is_let_go_until_there_is_no_half() -> None:
    held, keeper = Mappings(), Keeper()
    for name in "abcd":
        held.keep(keeper, name)
    assert held.shrink() and keeper.gone == [{"a", "b"}]
    assert held.shrink() and keeper.gone == [{"a", "b"}, {"c"}]
    assert not held.shrink() and len(keeper.gone) == 2


@pytest.mark.parametrize(("said", "limit"), [("1000", 500), ("no number", 32_765), (None, 32_765)])
def test_half_of_what_the_system_allows_is_kept_or_of_what_is_usual_where_it_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, limit: int
) -> None:
    if said is not None:
        (tmp_path / "max_map_count").write_text(said)
    monkeypatch.setattr(mappings, "MAX_MAP_COUNT", tmp_path / "max_map_count")
    assert Mappings().limit == limit


def mapped_while_fed(folder: Path, num_files: int) -> int:
    """Feed all tokens of many files with few descriptors; return how many stay mapped."""
    write_files(folder, num_files, 4)
    run = [sys.executable, "-c", MANY, str(folder), str(num_files), "4"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same, num_mapped = done.stdout.split()
    assert same == "True"
    return int(num_mapped)


@needs_kernels
def test_ten_thousand_shards_are_fed_with_256_descriptors(tmp_path: Path) -> None:
    assert mapped_while_fed(tmp_path / "many", 10_000) >= 10_000


@needs_kernels
@pytest.mark.soak
def test_more_shards_than_the_system_allows_mappings_are_fed(tmp_path: Path) -> None:
    allowed = int(mappings.MAX_MAP_COUNT.read_text())
    num_files = allowed // 100 * 100 + 5_000
    assert 0 < mapped_while_fed(tmp_path / "many", num_files) <= allowed // 2


def maps_of(folder: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(folder))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process that may hold twelve mapped files."""
    gc.collect()
    monkeypatch.setattr(MAPPINGS, "limit", 12)
    yield 12


@needs_kernels
@pytest.mark.parametrize(
    "sidecar",
    [None, *(pytest.param(name, marks=SOAK) for name in ("turns", "weights"))],
)
@pytest.mark.parametrize(
    "rows", [*(pytest.param(rows, marks=SOAK) for rows in ROWS[:-1]), ROWS[-1]]
)
def test_mappings_are_recycled_and_the_batches_are_the_same(
    tmp_path: Path, rows: str, sidecar: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "s", [25, 40, 8, 13] * 8, sidecar=sidecar, shard_tokens=40)
    recipe = recipe_of(Source(name="a", path=tmp_path / "s", rows=rows), global_batch_size=3)  # type: ignore[arg-type]
    feed = Feed(recipe)
    assert len(feed.plans[0].split.shards) > 20
    expected = [feed.batch(step) for step in range(40)]
    monkeypatch.setattr(MAPPINGS, "limit", 12)
    scarce = Feed(recipe)
    del feed
    gc.collect()
    for step, batch in enumerate(expected):
        assert equal(scarce.batch(step), batch)
        # What the last batch needed may be held besides: it was not let go while it was read.
        assert maps_of(tmp_path / "s") <= 12 + 3 * 9
    for step in (30, 0, 39):
        assert equal(scarce.batch(step), expected[step])


@needs_kernels
def test_threads_recycle_what_others_read_and_nobody_reads_what_is_gone(
    tmp_path: Path, few: int
) -> None:
    write_store(tmp_path / "s", [400] * 60, shard_tokens=400)
    source = Source(name="a", path=tmp_path / "s")
    recipe = recipe_of(source, seq_len=100, global_batch_size=16)
    feed = Feed(recipe, threads=2)
    expected = {step: feed.batch(step).input_ids.copy() for step in range(15)}
    wrong: list[int] = []

    def work(first: int) -> None:
        for turn in range(40):
            step = (first + turn) % 15
            if not np.array_equal(feed.batch(step).input_ids, expected[step]):
                wrong.append(step)

    callers = [threading.Thread(target=work, args=(4 * number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


@needs_kernels
def test_a_process_forked_while_another_thread_maps_can_map(tmp_path: Path, few: int) -> None:
    write_store(tmp_path / "s", [40] * 40, shard_tokens=40)
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s")))
    expected = feed.batch(7)
    with MAPPINGS.lock:  # what a thread of the parent holds, nobody in the child gives back
        holder = threading.Thread(target=MAPPINGS.lock.acquire)
        holder.start()
    holder.join()
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if equal(feed.batch(7), expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        MAPPINGS.renew_lock()


@pytest.mark.parametrize(
    "reader",
    ["read", *(pytest.param(name, marks=SOAK) for name in ("document", "turns"))],
)
def test_what_reads_a_split_lets_go_too_and_keeps_what_it_holds(
    tmp_path: Path, few: int, reader: str
) -> None:
    documents = write_store(tmp_path / "s", [40] * 40, sidecar="turns", shard_tokens=40)
    split = open_store(tmp_path / "s")["train"]
    views = []
    for number, document in enumerate(documents):
        if reader == "read":
            views.append(split.read(40 * number, 40 * number + 40))
        else:
            views.append(split.document(number).tokens)
        assert views[-1].tolist() == document.tokens
    assert maps_of(tmp_path / "s") >= 40  # a view holds its mapping
    assert [view.tolist() for view in views] == [document.tokens for document in documents]
    views.clear()
    gc.collect()
    assert maps_of(tmp_path / "s") <= few


def test_a_mapping_is_gone_with_its_last_array(tmp_path: Path) -> None:
    np.arange(5000, dtype="<u2").tofile(tmp_path / "a.bin")
    array = ArrayFile(path=tmp_path / "a.bin", dtype=np.dtype("<u2"), count=5000).map()
    part = array[10:20]
    assert maps_of(tmp_path) == 1
    del array
    gc.collect()
    assert part.tolist() == list(range(10, 20))
    del part
    gc.collect()
    assert maps_of(tmp_path) == 0


@needs_kernels
def test_a_mapping_keeps_no_descriptor_and_cannot_be_written(tmp_path: Path) -> None:
    np.arange(10, dtype="<u2").tofile(tmp_path / "a.bin")
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    array = ArrayFile(path=tmp_path / "a.bin", dtype=np.dtype("<u2"), count=10).map()
    assert len(list(descriptors.iterdir())) == before
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("kind", ["folder", "pipe"])
@needs_kernels
def test_what_is_no_file_is_not_mapped_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "a.bin"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    kernels = native.extension()
    assert kernels is not None
    with pytest.raises(OSError) as caught:
        kernels.Mapping(place)
    assert caught.value.errno == (errno.EISDIR if kind == "folder" else errno.EINVAL)
    with pytest.raises(TypeError):
        kernels.Mapping()
    with pytest.raises(TypeError):
        kernels.Mapping(path=place)
    with pytest.raises(ValueError, match="null"):
        kernels.Mapping("a\0b")


def failing(code: int, times: int) -> Callable[[], str]:
    """Return what fails so often, as the system does."""
    left = [times]

    def opens() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(code, os.strerror(code))
        return "opened"

    return opens


def test_a_shortage_is_told_from_damage_and_says_what_to_do(tmp_path: Path) -> None:
    place = tmp_path / "a.bin"
    for code, what, remedy in (
        (errno.EMFILE, "Too many open files, which is no damage", "ulimit -n"),
        (errno.ENFILE, "Too many open files in system, which is no damage", "ulimit -n"),
        (errno.ENOMEM, "the system allows no further mapping, which is no", "vm.max_map_count"),
    ):
        with pytest.raises(LimitError) as caught:
            with_descriptor(failing(code, 2), place)
        assert what in str(caught.value) and remedy in str(caught.value)
        assert caught.value.where == str(place)
        assert not isinstance(caught.value, DamageError)
    with pytest.raises(PermissionError):
        with_descriptor(failing(errno.EACCES, 1), place)


FULL = """
import os, resource, sys
from tokenreel import open_store
from tokenreel.errors import LimitError
store = open_store(sys.argv[1], mode=sys.argv[2])
soft, hard = 40, int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    print(store["train"].read(0, 3).tolist(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except LimitError as error:
    print(error)
"""


@pytest.mark.parametrize("mode", ["mmap", "pread"])
@pytest.mark.parametrize("hard", [40, 60])
def test_a_process_without_a_free_descriptor_raises_its_limit_or_says_so(
    tmp_path: Path, mode: str, hard: int
) -> None:
    write_store(tmp_path / "s", [5])
    run = [sys.executable, "-c", FULL, str(tmp_path / "s"), mode, str(hard)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    if hard == 60:
        assert said == "[1, 2, 3] 60\n"
    else:
        assert "shard_00000.bin: cannot be opened: Too many open files, which is no dam" in said
        assert "(got 40 open files, as many as are allowed); raise the limit" in said


NUMPY = """
import resource, sys
from tokenreel import Feed, Recipe, Source, open_store
from tokenreel.errors import LimitError
resource.setrlimit(resource.RLIMIT_NOFILE, (150, int(sys.argv[2])))
try:
    feed = Feed(Recipe(seq_len=4, global_batch_size=100, sources=[
        Source(name="a", path=sys.argv[1], dtype="uint32")]))
    print(feed.batch(0).input_ids.shape, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except LimitError as error:
    print(error)
print(open_store(sys.argv[1], dtype="uint32", mode="pread")["train"].read(0, 2).tolist())
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python maps without a descriptor")
@pytest.mark.parametrize("hard", [200, 900])
def test_without_the_kernels_what_cannot_be_mapped_is_refused_at_open(
    tmp_path: Path, hard: int
) -> None:
    write_files(tmp_path / "many", 300, 4)
    said = subprocess.run(
        [sys.executable, "-c", NUMPY, str(tmp_path / "many"), str(hard)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TOKENREEL_NATIVE": "0"},
    ).stdout.splitlines()
    assert said[1] == "[0, 1]"
    if hard == 900:
        assert said[0] == "(100, 4) 900"
    else:
        assert "the store has 300 files to map, and without the native kernels each" in said[0]
        assert "(expected a limit of 428 open files or more, got 200)" in said[0]
        assert 'or open the store with mode="pread"' in said[0]


def test_the_limit_of_this_process_is_not_touched_where_it_suffices(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    write_store(tmp_path / "s", [5])
    Feed(recipe_of(Source(name="a", path=tmp_path / "s"))).batch(0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
