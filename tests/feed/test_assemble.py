"""Property 20: the kernel that does it all at once gives the rows of the general way."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, scratch, write_store

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.gather import Gathered, empty_rows
from tokenreel.feed.recipe import Source
from tokenreel.feed.tables import MARK_TOKENS, OTHERWISE, PADDED

pytestmark = pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")

KINDS = ("windows", "document_windows", "episodes", "packed")


def noise(num_rows: int, seq_len: int) -> Gathered:
    """Memory in which nothing may be left as it was."""
    rows = empty_rows(num_rows, seq_len)
    for item in fields(rows):
        getattr(rows, item.name).fill(77)
    return rows


def check_same(feed: Feed, start: int, count: int) -> None:
    """Fill rows at once and by steps, and compare every array."""
    seq_len = feed.recipe.seq_len
    at_once, by_steps = noise(count, seq_len), noise(count, seq_len)
    assert feed._batcher._assembler._tables is not None
    assert feed._batcher._assembler._tables.fill_rows(start, at_once) == 0
    feed._batcher._assembler.fill_by_steps(start, by_steps)
    for item in fields(at_once):
        assert np.array_equal(getattr(at_once, item.name), getattr(by_steps, item.name)), item.name


@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    sidecars=st.tuples(*[st.sampled_from([None, "weights", "mask", "turns"])] * 2),
    lengths=st.lists(st.integers(0, 40), min_size=2, max_size=12),
    seq_len=st.integers(1, 20),
    shard_tokens=st.integers(5, 90),
    shuffle=st.booleans(),
    seed=st.integers(0, 999),
    change=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_rows_made_at_once_are_those_made_by_steps(
    kinds: tuple[str, str],
    sidecars: tuple[str | None, str | None],
    lengths: list[int],
    seq_len: int,
    shard_tokens: int,
    shuffle: bool,
    seed: int,
    change: bool,
) -> None:
    with scratch() as folder:
        sources = []
        for name, kind, sidecar in zip("ab", kinds, sidecars, strict=True):
            room = max(shard_tokens, 40) if sidecar == "turns" else shard_tokens
            write_store(folder / name, [*lengths, 9], sidecar=sidecar, shard_tokens=room, seed=seed)
            sources.append(Source(name=name, path=folder / name, rows=kind, shuffle=shuffle))
        recipe = recipe_of(*sources, seq_len=seq_len, batch_size=6, seed=seed, pad_id=5)
        try:
            feed = Feed(recipe)
        except ConfigError as error:
            assert "so there are no rows" in str(error)
            return
        if change:
            feed.step = 3
            feed.change_weights({"a": 1, "b": 5})
        least = min(plan.num_rows for plan in feed.plans)
        for start in (0, 7, 18, 40, 1000 * least):
            check_same(feed, start, min(least, 5))  # more may be of more than two epochs


@pytest.mark.parametrize("truncation", ["split", "keep_first", "keep_last", "whole_turns"])
@pytest.mark.parametrize("kind", ["packed", "episodes"])
def test_every_truncation_is_looked_up(tmp_path: Path, kind: str, truncation: str) -> None:
    lengths = [3, 70, 9, 41, 2, 55, 30, 12, 64] * 3
    write_store(tmp_path / "s", lengths, sidecar="turns", shard_tokens=80)
    source = Source(name="s", path=tmp_path / "s", rows=kind, truncation=truncation)
    feed = Feed(recipe_of(source, seq_len=24))
    check_same(feed, 0, feed.plans[0].num_rows)


def test_marks_lead_to_the_documents_and_turns_of_a_long_shard(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(0, 900, 120).tolist()
    assert sum(lengths) > 8 * MARK_TOKENS
    for sidecar in (None, "turns"):
        write_store(tmp_path / str(sidecar), lengths, sidecar=sidecar)
    for kind in KINDS:
        sources = [Source(name=name, path=tmp_path / name, rows=kind) for name in ("None", "turns")]
        feed = Feed(recipe_of(*sources, seq_len=64))
        check_same(feed, 0, 2 * min(plan.num_rows for plan in feed.plans))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"])
def test_tokens_of_every_dtype_are_widened(tmp_path: Path, dtype: str) -> None:
    least = 0 if dtype.startswith("u") else -60
    np.arange(least, 60).astype(dtype).tofile(tmp_path / "train.bin")
    source = Source(name="a", path=tmp_path / "train.bin", dtype=dtype, shuffle=False)
    check_same(Feed(recipe_of(source, seq_len=7)), 0, 20)


def test_documents_of_other_indexes_are_cut_alike(tmp_path: Path) -> None:
    np.arange(40, dtype="<u4").tofile(tmp_path / "tokens.bin")
    np.array([[0, 9], [9, 0], [9, 20], [29, 11]], "<u8").tofile(tmp_path / "episodes.idx")
    (np.arange(40) % 3 > 0).astype(np.uint8).tofile(tmp_path / "mask.bin")
    for kind in KINDS:
        feed = Feed(recipe_of(Source(name="a", path=tmp_path, rows=kind), seq_len=6))
        check_same(feed, 0, 2 * feed.plans[0].num_rows)


def feed_of(path: Path, **options: Any) -> Feed:
    write_store(path, [100])
    options = {"shuffle": False, **options}
    return Feed(recipe_of(Source(name="s", path=path, **options), seq_len=8))


def test_a_padded_row_is_not_passed_off_as_plain(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "s")
    rows, tables = noise(1, 8), feed._batcher._assembler._tables
    assert tables is not None
    assert tables.fill(11, rows.input_ids, rows.labels) == 0
    assert tables.fill(12, rows.input_ids, rows.labels) == PADDED
    assert feed.batch(3).segment_ids.tolist() == [[1] * 4 + [0] * 4] + [[1] * 8] * 3


def test_rows_of_an_epoch_that_is_not_allowed_are_left_to_the_general_way(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "s", max_epochs=2)
    rows, tables = noise(1, 8), feed._batcher._assembler._tables
    assert tables is not None
    assert tables.fill_rows(2 * feed.plans[0].num_rows - 1, rows) == 0
    assert tables.fill_rows(2 * feed.plans[0].num_rows, rows) == OTHERWISE


def test_a_batch_of_more_than_two_epochs_is_made_by_steps(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "s", shuffle=True)
    rows, tables = noise(5 * 13, 8), feed._batcher._assembler._tables
    assert tables is not None
    assert tables.fill_rows(0, rows) == OTHERWISE
    feed._batcher._assembler.fill(0, rows)
    for epoch in range(5):
        shown = rows.input_ids[13 * epoch : 13 * epoch + 13, 0]
        assert sorted(shown.tolist()) == list(range(1, 98, 8))


@pytest.mark.parametrize("damage", ["row_offsets", "positions", "lengths"])
def test_a_plan_that_leads_nowhere_is_read_by_nobody(tmp_path: Path, damage: str) -> None:
    write_store(tmp_path / "s", [30, 5, 12, 7])
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s", rows="packed"), seq_len=16))
    tables, plan = feed._batcher._assembler._tables, feed.plans[0]
    assert tables is not None
    column = np.array(getattr(plan.table, damage))  # type: ignore[attr-defined]
    for bad in (-1, 2**31 - 1):
        column[:] = bad
        number = ("row_offsets", "positions", "lengths").index(damage)
        tables._epochs[0]["columns"][0, number] = tables._address(column)
        assert tables.fill_rows(0, noise(2, 16)) == OTHERWISE


def test_tables_and_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "s")
    rows, tables = noise(2, 8), feed._batcher._assembler._tables
    assert tables is not None
    for short in ("labels", "segment_ids", "position_ids", "loss_weights"):
        arrays = {item.name: getattr(rows, item.name) for item in fields(rows)}
        arrays[short] = arrays[short][:1]
        with pytest.raises(ValueError, match="assemble: buffer sizes do not fit"):
            tables.fill_rows(0, Gathered(**arrays))
    rows.input_ids.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        tables.fill_rows(0, rows)
