"""Fault 1: a crash at every write, fsync and rename, whatever became of unsynced writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.crashing import Crash, CrashingFileSystem
from tests.store.building import (
    LEAFLETS,
    OTHER_BOOKS,
    SMALL,
    Corpus,
    add_all,
    as_lists,
    build,
    build_full,
    leftovers,
    read_all,
)
from tests.store.independent import contents, find_damage

from tokenreel import StoreWriter, open_store
from tokenreel.errors import LayoutError, UnfinishedError
from tokenreel.filesystem import FileSystem

Build = Callable[[Path, FileSystem], Path]


def build_first(path: Path, filesystem: FileSystem) -> Path:
    return build(path, LEAFLETS, filesystem=filesystem)


def build_instead(path: Path, filesystem: FileSystem) -> Path:
    return build(path, LEAFLETS, filesystem=filesystem, replace=True)


def build_anew(path: Path, filesystem: FileSystem) -> Path:
    return build(path, LEAFLETS, filesystem=filesystem, restart=True)


def build_every_kind(path: Path, filesystem: FileSystem) -> Path:
    return build_full(path, filesystem=filesystem)


def crash_points(
    build_store: Build,
    prepare: Callable[[Path], object],
    place: Path,
    *,
    points: slice = slice(None),
) -> Iterator[tuple[str, Path]]:
    """Yield the folder as each crash left it, by every policy; `points` leaves some out."""
    path = place / "books"
    prepare(path)
    whole = CrashingFileSystem()
    build_store(path, whole)
    shutil.rmtree(path)
    assert len(whole.operations) > 60
    for crash_at in range(1, len(whole.operations) + 1)[points]:
        policies: list[str] | None = None
        while policies is None or policies:
            prepare(path)
            filesystem = CrashingFileSystem(crash_at)
            with pytest.raises(Crash):
                build_store(path, filesystem)
            policies = filesystem.distinct_policies() if policies is None else policies
            filesystem.fall(policy := policies.pop(), seed=crash_at)
            yield f"operation {crash_at}, {policy}", path
            shutil.rmtree(path, ignore_errors=True)


def visible(path: Path) -> dict[str, list[list[int]]] | None:
    """Return what a reader sees: a whole corpus, or None where there is no store (yet)."""
    try:
        documents = read_all(path)
    except (UnfinishedError, LayoutError):
        return None
    assert find_damage(path) == []
    return documents


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of a build that nothing interrupted."""
    return contents(build(tmp_path_factory.mktemp("whole") / "books", LEAFLETS))


def nothing(path: Path) -> None:
    pass


def test_a_first_build_is_there_whole_or_not_at_all(
    memory_disk: Path, whole: dict[str, bytes]
) -> None:
    for point, path in crash_points(build_first, nothing, memory_disk):
        seen = visible(path)
        assert seen in (None, as_lists(LEAFLETS)), point
        if seen is None:
            build(path, LEAFLETS)
        assert contents(path) == whole, point


def test_a_replaced_store_is_the_old_one_or_the_new_one(
    memory_disk: Path, whole: dict[str, bytes]
) -> None:
    # This is the second replacement: the shards of the first version lie where those of the
    # third one go, and their facts are the same. Nothing of them may be taken for its own.
    old = build(memory_disk / "old", {"train": [[7] * 12, [8] * 12]})
    build(old, OTHER_BOOKS, replace=True)
    versions = (as_lists(OTHER_BOOKS), as_lists(LEAFLETS))
    for point, path in crash_points(
        build_instead, lambda path: shutil.copytree(old, path), memory_disk
    ):
        assert visible(path) in versions, point
        build(path, LEAFLETS, replace=True)
        assert contents(path) == whole, point
        assert leftovers(path) == [], point


def test_a_build_that_was_committed_is_never_continued(memory_disk: Path) -> None:
    third = {"train": [[3] * 12, [4] * 12, [5]]}
    expected = contents(build(memory_disk / "expected", third))
    old = build(memory_disk / "old", OTHER_BOOKS)
    num_committed = 0
    for point, path in crash_points(
        build_instead,
        lambda path: shutil.copytree(old, path),
        memory_disk,
        points=slice(-15, None),
    ):
        if visible(path) == as_lists(LEAFLETS):
            num_committed += 1
            build(path, third, replace=True, vocab_size=1000)
            assert contents(path) == expected, point
    assert num_committed > 3


def test_a_restart_leaves_all_of_the_build_it_gave_up_or_nothing(
    memory_disk: Path, whole: dict[str, bytes]
) -> None:
    begun = memory_disk / "begun"
    with pytest.raises(KeyboardInterrupt), StoreWriter(begun, **SMALL) as writer:
        add_all(writer, {"train": [[1] * 12, [2] * 12, [3] * 12, [4] * 12]})
        raise KeyboardInterrupt
    old = {file.name: file.read_bytes() for file in (begun / "train").glob("*.bin")}
    for point, path in crash_points(
        build_anew,
        lambda path: shutil.copytree(begun, path),
        memory_disk,
        points=slice(50),
    ):
        seen = visible(path)
        assert seen in (None, as_lists(LEAFLETS)), point
        if (path / ".build/plan.json").exists():
            # Whoever finds a plan goes on with the shards beside it.
            kept = [name for name in old if same_bytes(path / "train" / name, old[name])]
            assert kept in ([], list(old)), point
        if seen is None:
            build(path, LEAFLETS, restart=True)
        assert contents(path) == whole, point


def same_bytes(file: Path, data: bytes) -> bool:
    return file.exists() and file.read_bytes() == data


def killed(path: Path, killed_at: int, **options: Any) -> CrashingFileSystem | None:
    """Build until a process is killed; return the disk, or None where the build completed."""
    filesystem = CrashingFileSystem(killed_at)
    completed = attempt(path, LEAFLETS, filesystem, **options)
    return None if completed else filesystem


def test_a_build_killed_anywhere_and_continued_to_its_end_survives_a_power_failure(
    memory_disk: Path, whole: dict[str, bytes]
) -> None:
    # What the killed process had not synced, the second one believes; it must sync it.
    for killed_at in range(1, 1000):
        path = memory_disk / "books"
        filesystem = killed(path, killed_at)
        if filesystem is None:
            break
        filesystem.start_again(crash_at=None)
        if visible(path) is None:
            build(path, LEAFLETS, filesystem=filesystem)
            filesystem.fall("dropped")
            assert visible(path) == as_lists(LEAFLETS), killed_at
            assert contents(path) == whole, killed_at
        shutil.rmtree(path)
    assert killed_at > 60


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.soak), 13])
@pytest.mark.parametrize("policy", ["dropped", "any of it"])
def test_a_build_killed_anywhere_and_continued_survives_a_power_failure_anywhere(
    memory_disk: Path, whole: dict[str, bytes], step: int, policy: str
) -> None:
    for killed_at in range(1, 1000, step):
        for crash_at in range(1 + killed_at % step, 1000, step):
            path = memory_disk / "books"
            filesystem = killed(path, killed_at)
            if filesystem is None or visible(path) is not None:
                return
            filesystem.start_again(crash_at=crash_at)
            completed = attempt(path, LEAFLETS, filesystem)
            filesystem.fall(policy, seed=killed_at * 1000 + crash_at)
            seen = visible(path)
            assert seen == as_lists(LEAFLETS) if completed else seen in (None, as_lists(LEAFLETS))
            if seen is None:
                build(path, LEAFLETS)
            assert contents(path) == whole, (killed_at, crash_at)
            shutil.rmtree(path)
            if completed:
                break


def test_a_folder_made_by_a_killed_build_is_durable_before_the_manifest_names_it(
    memory_disk: Path,
) -> None:
    path = memory_disk / "books"
    whole = CrashingFileSystem()
    build(path, LEAFLETS, filesystem=whole)
    shutil.rmtree(path)
    made = [number for number, name in enumerate(whole.operations) if name == "make_dir"]
    for killed_at in (number + 2 for number in made):  # before its folder is synced
        for seed in range(8):  # three changes of names, each lost or not
            filesystem = killed(path, killed_at)
            assert filesystem is not None
            filesystem.start_again(crash_at=None)
            build(path, LEAFLETS, filesystem=filesystem)
            renamed = max(n for n, name in enumerate(filesystem.operations) if name == "rename")
            shutil.rmtree(path)
            filesystem = killed(path, killed_at)
            assert filesystem is not None
            filesystem.start_again(crash_at=renamed + 2)  # the manifest has its name, no more
            assert not attempt(path, LEAFLETS, filesystem)
            filesystem.fall("any of it", seed=seed)
            assert visible(path) in (None, as_lists(LEAFLETS)), (killed_at, seed)
            shutil.rmtree(path)


@pytest.mark.parametrize("policy", ["dropped", pytest.param("any of it", marks=pytest.mark.soak)])
def test_a_replacement_killed_at_its_commit_does_not_cost_the_store(
    memory_disk: Path, policy: str
) -> None:
    # The next replacement removes what the new manifest does not name; but the rename of that
    # manifest may still be lost, and the old one names it.
    old = build(memory_disk / "old", OTHER_BOOKS)
    third = {"train": [[3] * 12, [4] * 12, [5]]}
    versions = (as_lists(OTHER_BOOKS), as_lists(LEAFLETS), third)
    num_committed = 0
    for killed_at in range(1, 1000):
        path = memory_disk / "books"
        shutil.copytree(old, path)
        filesystem = killed(path, killed_at, replace=True)
        if filesystem is None:
            break
        if read_all(path) == as_lists(LEAFLETS):
            num_committed += 1
            for crash_at in range(1, 25, 2):
                shutil.rmtree(path)
                shutil.copytree(old, path)
                filesystem = killed(path, killed_at, replace=True)
                assert filesystem is not None
                filesystem.start_again(crash_at=crash_at)
                attempt(path, third, filesystem, replace=True)
                filesystem.fall(policy, seed=crash_at)
                assert visible(path) in versions, (killed_at, crash_at)
        shutil.rmtree(path)
    assert num_committed > 2


def attempt(path: Path, corpus: Corpus, filesystem: FileSystem, **options: Any) -> bool:
    """Build, and tell whether that came to its end."""
    try:
        build(path, corpus, filesystem=filesystem, **options)
    except Crash:
        return False
    return True


@pytest.mark.soak
def test_a_store_with_every_kind_of_file_survives_every_crash(memory_disk: Path) -> None:
    expected = contents(build_full(memory_disk / "whole"))
    for point, path in crash_points(build_every_kind, nothing, memory_disk):
        try:
            open_store(path)
        except (UnfinishedError, LayoutError):
            build_full(path)
        assert contents(path) == expected, point
        assert find_damage(path) == [], point


def test_every_change_on_disk_is_observed(memory_disk: Path) -> None:
    # If something changed the folder behind the file system's back, refusing every operation
    # would not keep it empty.
    path = memory_disk / "books"
    filesystem = CrashingFileSystem(1)
    with pytest.raises(Crash):
        build(path, LEAFLETS, filesystem=filesystem)
    assert list(memory_disk.iterdir()) == []
