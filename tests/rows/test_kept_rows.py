"""Windows and episodes are found once: later starts read nothing of what they were found in."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, scratch, write_store
from tests.rows.corpora import Place
from tests.rows.planning import (
    CHAT_LENGTHS,
    KINDS,
    FullAfter,
    Observed,
    all_of,
    plan_folder,
    rows_of,
    said_by_three,
    tree,
)

from tokenreel import open_store
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.rows.episodes import Episodes
from tokenreel.rows.plan_file import HEADER, check_plan
from tokenreel.rows.windows import Windows
from tokenreel.store.store import Store


@given(
    lengths=st.lists(st.sampled_from([0, 1, 1, 2, 3, 7, 20]), min_size=1, max_size=12),
    kind=st.sampled_from(KINDS),
    sidecar=st.sampled_from([None, "weights", "mask", "turns"]),
    seq_len=st.integers(1, 12),
    truncation=st.sampled_from([None, "split", "keep_last"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_rows_from_the_cache_are_the_rows_that_are_found(
    lengths: list[int],
    kind: str,
    sidecar: str | None,
    seq_len: int,
    truncation: str | None,
    seed: int,
) -> None:
    options: dict[str, Any] = {"truncation": truncation} if kind == "episodes" else {}
    with scratch() as folder:
        write_store(folder / "s", [*lengths, 2], sidecar=sidecar, shard_tokens=20, seed=seed)
        store = open_store(folder / "s")
        try:
            found = rows_of(store, kind, seq_len=seq_len, cache=None, **options)
        except ConfigError as error:
            with pytest.raises(ConfigError) as caught:
                rows_of(store, kind, seq_len=seq_len, **options)
            assert str(caught.value) == str(error)
            assert list((folder / "s" / ".plans").iterdir()) == []
            return
        made = rows_of(store, kind, seq_len=seq_len, **options)
        quiet = Observed()
        again = open_store(folder / "s")
        opened = rows_of(again, kind, seq_len=seq_len, filesystem=quiet, **options)
        assert all_of(made) == all_of(opened) == all_of(found)
        assert quiet.operations == []
        assert (folder / "s" / ".plans").exists() == (kind != "windows" or sidecar is not None)
        if opened.folder is not None:
            check_files(opened)


def check_files(plan: Windows | Episodes) -> None:
    """There is a file for what a plan has to say, and what is read is what is stored."""
    assert plan.folder is not None
    names = {file.name for file in plan.folder.iterdir()} - {HEADER}
    if isinstance(plan, Windows):
        assert names == (set() if plan.kept is None else {"kept"})
        stored = {"kept": plan.kept}
    else:
        has_prefix = plan.segments.prefix_length.any()
        assert ("prefix_length" in names) == ("prefix_start" in names) == has_prefix
        stored = {name: getattr(plan.segments, name) for name in names}
    for name in names:
        column = stored[name]
        assert column is not None
        assert column.tobytes() == (plan.folder / name).read_bytes()


READS = """
import json, sys
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.store import reader as native
native.CHECKED_INDEX_BYTES = 0  # as for an index of more than 64 MiB: not read when opened
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
for path in sys.argv[1:]:
    for rows in ("windows", "document_windows", "episodes", "packed"):
        for mode in ("mmap", "pread"):
            for start in ("first", "second"):
                opened.clear()
                source = Source(name="a", path=path, rows=rows, mode=mode)
                Feed(Recipe(seq_len=5, global_batch_size=4, sources=[source]))
                print(json.dumps([path, rows, mode, start, opened]))
"""


def test_a_second_start_opens_no_index_no_turns_and_no_weights(place: Place) -> None:
    paths = []
    for sidecar in (None, "turns", "weights"):
        paths.append(place())
        write_store(paths[-1], CHAT_LENGTHS, sidecar=sidecar, shard_tokens=40)
    lines = subprocess.run(
        [sys.executable, "-c", READS, *map(str, paths)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()
    assert len(lines) == 48
    surveyed = 0
    for path, rows, mode, start, opened in map(json.loads, lines):
        kinds = {Path(name).suffix for name in opened}
        data = kinds & {".bin", ".docs", ".turns", ".weights"}
        # What the first start of each kind of rows has found, the other mode finds as well.
        if (
            start == "first"
            and mode == "mmap"
            and not (rows == "windows" and path == str(paths[0]))
        ):
            surveyed += 1
            assert data, (path, rows)
        else:
            assert data == set(), (path, rows, mode, start)
    assert surveyed == 11


def test_plain_windows_ask_the_store_for_nothing(tmp_path: Path) -> None:
    write_store(tmp_path / "s", CHAT_LENGTHS)
    before = tree(tmp_path)
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s")))
    assert "fingerprint" not in vars(feed.stores[0])
    assert tree(tmp_path) == before
    assert not (tmp_path / "s" / ".plans").exists()


def test_a_plan_depends_on_the_length_and_kind_of_rows_and_on_the_store(chats: Store) -> None:
    for kind in KINDS:
        for seq_len in (5, 6):
            rows_of(chats, kind, seq_len=seq_len)
    rows_of(chats, "episodes", min_tokens=4)
    rows_of(chats, "episodes", truncation="keep_last")
    assert len(list((chats.path / ".plans").iterdir())) == 8
    other = chats.path.with_name("other")
    write_store(other, CHAT_LENGTHS, sidecar="turns", shard_tokens=40, seed=4)
    shutil.copytree(chats.path / ".plans", other / ".plans")
    copy = open_store(other)
    for kind in KINDS:
        assert all_of(rows_of(copy, kind)) == all_of(rows_of(copy, kind, cache=None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_only_store_keeps_its_rows_in_the_cache_folder(
    place: Place, chats: Store, kind: str
) -> None:
    plan = rows_of(chats, kind, filesystem=Observed(read_only=chats.path))
    assert not (chats.path / ".plans").exists()
    (folder,) = (place.root / "cache" / "tokenreel" / "plans").iterdir()
    assert plan.folder == folder
    quiet = Observed(read_only=chats.path)
    assert all_of(rows_of(chats, kind, filesystem=quiet)) == all_of(plan)
    assert quiet.operations == []


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_plan_can_be_kept_the_rows_are_found_each_time(
    chats: Store, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            plan = rows_of(chats, kind, filesystem=FullAfter(4))
        assert "rows are planned at every start, as the plan is not kept" in caplog.text
        assert "No space left on device" in caplog.text
        caplog.clear()
        assert plan.folder is None
        assert all_of(plan) == all_of(rows_of(chats, kind, cache=None))
    assert list((chats.path / ".plans").iterdir()) == []


def test_a_feed_over_a_store_without_rows_says_so_every_time(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [1] * 9)
    recipe = recipe_of(Source(name="a", path=tmp_path / "s", rows="document_windows"), seq_len=3)
    for _ in range(2):
        with pytest.raises(ConfigError, match="no window has a trained target"):
            Feed(recipe)
    assert list((tmp_path / "s" / ".plans").iterdir()) == []


def test_of_starts_at_the_same_time_one_looks_and_the_others_wait(chats: Store) -> None:
    disk = Observed()
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(rows_of, chats, "windows", filesystem=disk) for _ in range(4)]
        plans = [all_of(job.result()) for job in jobs]
    assert all(plan == plans[0] for plan in plans)
    assert disk.operations.count("create") == 2  # the column and the header


def test_processes_at_the_same_time_end_with_one_plan(chats: Store) -> None:
    program = (
        "import sys, tokenreel\n"
        "from tokenreel import Feed, Recipe, Source\n"
        "source = Source(name='a', path=sys.argv[1], rows='document_windows')\n"
        "feed = Feed(Recipe(seq_len=5, global_batch_size=4, sources=[source]))\n"
        "print(feed.plans[0].num_rows, feed.batch(7).input_ids.tolist())\n"
    )
    said = said_by_three(program, chats)
    assert said.split()[0] == str(rows_of(chats, "document_windows", cache=None).num_rows)
    assert check_plan(plan_folder(chats)) == []


def test_episodes_found_in_small_blocks_are_stored_alike(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix in a late block only: the rows before it have none, and a place for it."""
    from tests.rows.corpora import make_turns
    from tests.rows.corpora import write_store as write_chats

    from tokenreel.rows import episodes

    spec = [("system", 3, 1, 0, 0.0), ("user", 9, 1, 0, 0.0), ("assistant", 4, 1, 0, 1.0)]
    long = make_turns([*spec, ("user", 2, 1, 0, 0.0), ("assistant", 3, 1, 0, 1.0)])
    short = make_turns([("user", 2, 1, 0, 0.0), ("assistant", 3, 1, 0, 1.0)])
    turns = [short, short, short, long, short]
    lengths = [5, 5, 5, 21, 5]
    stores = [write_chats(place(), lengths, turns=turns, shard_bytes=140) for _ in range(2)]
    whole = rows_of(stores[0], "episodes", seq_len=11)
    monkeypatch.setattr(episodes, "DOCUMENTS_AT_ONCE", 2)
    parts = rows_of(stores[1], "episodes", seq_len=11)
    assert all_of(parts) == all_of(whole)
    assert isinstance(parts, Episodes)
    assert parts.segments.prefix_length.tolist() == [0, 0, 0, 3, 0]
