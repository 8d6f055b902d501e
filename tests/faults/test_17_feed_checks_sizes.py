"""Fault 17, the feed's half: sizes are checked again whenever a source begins an epoch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.errors import DamageError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.rows.kinds import Rows
from tokenreel.testing import equal

RUN = """
import os, sys
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
path, rows, mode = sys.argv[1:]
source = Source(name="a", path=path, rows=rows, mode=mode)
stream = Feed(Recipe(seq_len=64, global_batch_size=16, sources=[source])).stream(prefetch=2)
for batch in stream:
    if batch.step == 1:
        os.truncate(path + "/train/shard_00000.bin", 100)
    print(batch.step, flush=True)
"""


@pytest.mark.parametrize("rows", ["windows", "document_windows", "episodes", "packed"])
def test_a_truncated_shard_is_an_error_at_the_next_epoch(tmp_path: Path, rows: Rows) -> None:
    write_store(tmp_path / "s", [8] * 40)
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s", rows=rows), global_batch_size=4))
    per_epoch = -(-feed.plans[0].num_rows // 4)
    for step in range(per_epoch - 1):
        feed.batch(step)
    shard = tmp_path / "s" / "train" / "shard_00000.bin"
    whole = shard.read_bytes()
    # Longer, not shorter: what is mapped stays readable, and only the check can notice.
    shard.write_bytes(whole + b"\0\0")
    with pytest.raises(DamageError) as caught:
        for step in range(per_epoch - 1, per_epoch + 1):
            feed.batch(step)
    assert caught.value.where == str(shard)
    assert "the file is too long" in str(caught.value)


def test_every_epoch_is_checked_and_the_steps_between_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "a", [8 * 40 + 1])
    write_store(tmp_path / "b", [8 * 10 + 1])
    sources = [Source(name=name, path=tmp_path / name) for name in ("a", "b")]
    feed = Feed(recipe_of(*sources, global_batch_size=4))
    checks: dict[str, list[int]] = {"a": [], "b": []}
    step = 0
    for name, plan in zip("ab", feed.plans, strict=True):
        noted = plan.split.check_sizes

        def note(name: str = name, noted=noted) -> None:  # type: ignore[no-untyped-def]
            checks[name].append(step)
            noted()

        monkeypatch.setattr(plan.split, "check_sizes", note)
    for step in range(80):  # 160 rows of each source
        feed.batch(step)
    for name, num_rows in (("a", 40), ("b", 10)):
        expected = [s for s in range(1, 82) if begins_epoch(feed, name, s)]
        # At most as many positions early as there are sources, so at most a step.
        early = np.array(expected[: len(checks[name])]) - checks[name]
        assert set(early.tolist()) <= {0, 1}
        assert len(checks[name]) >= len([step for step in expected if step < 80])
        assert abs(len(checks[name]) - 160 // num_rows) <= 1


def begins_epoch(feed: Feed, name: str, step: int) -> bool:
    """Whether a source shows the first row of an epoch in a step."""
    before, after = (feed.epoch_of(s)[name] for s in (step, step + 1))
    return -(-before // 1) < -(-after // 1)


def test_a_source_read_by_pread_gives_the_same_batches(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [30, 9, 80, 2], sidecar="turns", shard_tokens=90)
    for rows in ("windows", "document_windows", "episodes", "packed"):
        mapped, copied = (
            Feed(recipe_of(Source(name="a", path=tmp_path / "s", rows=rows, mode=mode)))
            for mode in ("mmap", "pread")
        )
        assert equal([mapped.batch(s) for s in range(9)], [copied.batch(s) for s in range(9)])


def test_a_source_read_by_pread_survives_a_truncation_at_once(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [4000], shard_tokens=5000)
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s", mode="pread"), global_batch_size=4))
    feed.batch(0)
    os.truncate(tmp_path / "s" / "train" / "shard_00000.bin", 0)
    with pytest.raises(DamageError, match="the file ends at byte 0, before what is read"):
        feed.batch(1)


@pytest.mark.parametrize("rows", ["windows", "episodes"])
def test_a_real_run_ends_with_the_error_and_not_by_a_signal(tmp_path: Path, rows: str) -> None:
    """One page of tokens: what was mapped stays, so that the epoch can end before the error."""
    write_store(tmp_path / "s", [50] * 40)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "s"), rows, "mmap"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout.split()[:2] == ["0", "1"]
    assert "DamageError" in done.stderr
    assert "the file is too short (expected 4,000 bytes, got 100 bytes)" in done.stderr


def until_damage(feed: Feed, start: int, *, seconds: float) -> DamageError | None:
    """Make batches from a step on until one raises, or the time is over."""
    deadline = time.monotonic() + seconds
    step = start
    while time.monotonic() < deadline:
        try:
            feed.batch(step)
        except DamageError as error:
            return error
        step += 1
        time.sleep(0.001)
    return None


@pytest.fixture
def long_feed(tmp_path: Path) -> Feed:
    """An epoch of some ten thousand steps over three shards."""
    write_store(tmp_path / "s", [60_000], shard_tokens=20_001)
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s"), seq_len=2, global_batch_size=2))
    feed.batch(0)
    assert until_damage(feed, 1, seconds=0.1) is None
    return feed


@pytest.mark.parametrize("shard", [0, 2])
def test_a_file_that_changes_its_size_within_an_epoch_is_noticed(
    long_feed: Feed, shard: int
) -> None:
    path = long_feed.plans[0].split.shards[shard].token_file.path
    with path.open("ab") as file:  # longer, so that what is mapped stays readable
        file.write(b"\0\0")
    error = until_damage(long_feed, 100, seconds=10)
    assert error is not None
    assert error.where == str(path)
    assert "the file is too long" in str(error)


def test_a_file_that_was_replaced_harms_nobody_within_an_epoch(long_feed: Feed) -> None:
    path = long_feed.plans[0].split.shards[1].token_file.path
    new = path.with_name("new")
    new.write_bytes(b"\0" * 10)
    new.replace(path)
    long_feed.plans[0].split.shards[2].token_file.path.unlink()
    assert until_damage(long_feed, 100, seconds=0.5) is None
