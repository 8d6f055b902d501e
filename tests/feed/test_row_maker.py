"""Property 20: the kernel that does it all at once gives the rows of the general way."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, scratch, write_store

from tokenreel import native
from tokenreel.errors import ConfigError
from tokenreel.feed.buffers import BatchMemory
from tokenreel.feed.feed import Feed
from tokenreel.feed.kernel_tables import MARK_TOKENS, OTHERWISE, PADDED
from tokenreel.feed.recipe import Source, Truncation
from tokenreel.order.mixture import Mixture
from tokenreel.rows.kinds import Rows

pytestmark = pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")

KINDS: tuple[Rows, ...] = ("windows", "document_windows", "episodes", "packed")


def noise(num_rows: int, seq_len: int) -> BatchMemory:
    """Memory in which nothing may be left as it was."""

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.full(shape, 77, dtype)

    memory = BatchMemory(num_rows, seq_len, allocate=allocate, masked=True)
    memory.source_ids[:] = 77
    return memory


def arrays_of(memory: BatchMemory) -> dict[str, np.ndarray]:
    rows = memory.rows()
    arrays = {item.name: getattr(rows, item.name) for item in fields(rows)}
    assert memory.mask is not None
    return {**arrays, "mask": memory.mask, "source_ids": memory.source_ids}


def fill_at_once(feed: Feed, step: int, seats: np.ndarray, memory: BatchMemory, **how: Any) -> int:
    tables = feed._batcher._assembler._tables
    assert tables is not None
    return tables.fill(feed.order, step, seats, memory, **how)


def check_same(feed: Feed, step: int, seats: np.ndarray) -> None:
    """Fill rows at once and by steps, and compare every array."""
    at_once, by_steps = (noise(len(seats), feed.recipe.seq_len) for _ in range(2))
    assert fill_at_once(feed, step, seats, at_once) == 0
    feed._batcher._assembler.fill_by_steps(step, seats, by_steps)
    expected = arrays_of(by_steps)
    for name, array in arrays_of(at_once).items():
        assert np.array_equal(array, expected[name]), name


@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    sidecars=st.tuples(*[st.sampled_from([None, "weights", "mask", "turns"])] * 2),
    lengths=st.lists(st.integers(0, 40), min_size=2, max_size=12),
    seq_len=st.integers(1, 20),
    shard_tokens=st.integers(5, 90),
    shuffle=st.booleans(),
    seed=st.integers(0, 999),
    change=st.booleans(),
    size=st.integers(1, 6),
    data=st.data(),
)
@settings(max_examples=10, deadline=None)
def test_rows_made_at_once_are_those_made_by_steps(
    kinds: tuple[Rows, Rows],
    sidecars: tuple[str | None, str | None],
    lengths: list[int],
    seq_len: int,
    shard_tokens: int,
    shuffle: bool,
    seed: int,
    change: bool,
    size: int,
    data: st.DataObject,
) -> None:
    with scratch() as folder:
        sources = []
        for name, kind, sidecar in zip("ab", kinds, sidecars, strict=True):
            room = max(shard_tokens, 40) if sidecar == "turns" else shard_tokens
            write_store(folder / name, [*lengths, 9], sidecar=sidecar, shard_tokens=room, seed=seed)
            sources.append(Source(name=name, path=folder / name, rows=kind, shuffle=shuffle))
        recipe = recipe_of(*sources, seq_len=seq_len, global_batch_size=size, seed=seed, pad_id=5)
        try:
            feed = Feed(recipe)
        except ConfigError as error:
            assert "so there are no rows" in str(error)
            return
        if change:
            feed.step = 3
            feed.change_weights({"a": 1, "b": 5})
        if size > min(plan.num_rows for plan in feed.plans):
            return  # a step may be of more than two epochs
        for step in (0, 2, 3, 7, 1000):
            seats = data.draw(st.lists(st.integers(-1, size - 1), min_size=1, max_size=8))
            check_same(feed, step, np.array(seats))


def whole_feed(*sources: Source, seq_len: int, epochs: int = 1) -> Feed:
    """Return a feed whose step is a pass over the smallest source, or several of them."""
    feed = Feed(recipe_of(*sources, seq_len=seq_len))
    least = min(plan.num_rows for plan in feed.plans)
    return Feed(replace(feed.recipe, global_batch_size=epochs * least))


@pytest.mark.parametrize("truncation", ["split", "keep_first", "keep_last", "whole_turns"])
@pytest.mark.parametrize("kind", ["packed", "episodes"])
def test_every_truncation_is_looked_up(tmp_path: Path, kind: Rows, truncation: Truncation) -> None:
    lengths = [3, 70, 9, 41, 2, 55, 30, 12, 64] * 3
    write_store(tmp_path / "s", lengths, sidecar="turns", shard_tokens=80)
    source = Source(name="s", path=tmp_path / "s", rows=kind, truncation=truncation)
    feed = whole_feed(source, seq_len=24)
    check_same(feed, 0, np.arange(feed.recipe.global_batch_size))


def test_marks_lead_to_the_documents_and_turns_of_a_long_shard(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(0, 900, 120).tolist()
    assert sum(lengths) > 8 * MARK_TOKENS
    for sidecar in (None, "turns"):
        write_store(tmp_path / str(sidecar), lengths, sidecar=sidecar)
    for kind in KINDS:
        sources = [Source(name=name, path=tmp_path / name, rows=kind) for name in ("None", "turns")]
        feed = whole_feed(*sources, seq_len=64, epochs=2)
        check_same(feed, 0, np.arange(feed.recipe.global_batch_size))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"])
def test_tokens_of_every_dtype_are_widened(tmp_path: Path, dtype: str) -> None:
    least = 0 if dtype.startswith("u") else -60
    np.arange(least, 60).astype(dtype).tofile(tmp_path / "train.bin")
    source = Source(name="a", path=tmp_path / "train.bin", dtype=dtype, shuffle=False)
    check_same(Feed(recipe_of(source, seq_len=7, global_batch_size=20)), 0, np.arange(20))


def test_documents_of_other_indexes_are_cut_alike(tmp_path: Path) -> None:
    np.arange(40, dtype="<u4").tofile(tmp_path / "tokens.bin")
    np.array([[0, 9], [9, 0], [9, 20], [29, 11]], "<u8").tofile(tmp_path / "episodes.idx")
    (np.arange(40) % 3 > 0).astype(np.uint8).tofile(tmp_path / "mask.bin")
    for kind in KINDS:
        feed = whole_feed(Source(name="a", path=tmp_path, rows=kind), seq_len=6, epochs=2)
        check_same(feed, 0, np.arange(feed.recipe.global_batch_size))


def feed_of(path: Path, **options: Any) -> Feed:
    write_store(path, [100])
    options = {"shuffle": False, **options}
    return Feed(recipe_of(Source(name="s", path=path, **options), seq_len=8))


def test_a_padded_row_is_not_passed_off_as_plain(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "s")
    memory = noise(1, 8)
    assert fill_at_once(feed, 2, np.array([3]), memory, plain=True) == 0
    assert fill_at_once(feed, 3, np.array([0]), memory, plain=True) == PADDED
    assert fill_at_once(feed, 2, np.array([-1]), memory, plain=True) == PADDED
    assert feed.batch(3).segment_ids.tolist() == [[1] * 4 + [0] * 4] + [[1] * 8] * 3


def test_rows_of_an_epoch_that_is_not_allowed_are_left_to_the_general_way(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "s", max_epochs=2)
    step, seat = divmod(2 * feed.plans[0].num_rows, 4)
    assert seat > 0
    assert fill_at_once(feed, step, np.array([seat - 1]), noise(1, 8)) == 0
    assert fill_at_once(feed, step, np.array([seat]), noise(1, 8)) == OTHERWISE


def test_a_batch_of_more_than_two_epochs_is_made_by_steps(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [100])
    feed = whole_feed(Source(name="s", path=tmp_path / "s"), seq_len=8, epochs=5)
    memory, seats = noise(5 * 13, 8), np.arange(5 * 13)
    assert fill_at_once(feed, 0, seats, memory) == OTHERWISE
    feed._batcher._assembler.fill(0, seats, memory)
    for epoch in range(5):
        shown = memory.input_ids[13 * epoch : 13 * epoch + 13, 0]
        assert sorted(shown.tolist()) == list(range(1, 98, 8))


@pytest.mark.parametrize("damage", ["row_offsets", "positions", "lengths"])
def test_impossible_rows_of_a_plan_are_read_by_nobody(tmp_path: Path, damage: str) -> None:
    write_store(tmp_path / "s", [30, 5, 12, 7])
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s", rows="packed"), seq_len=16))
    tables, plan = feed._batcher._assembler._tables, feed.plans[0]
    assert tables is not None
    column = np.array(getattr(plan.table, damage))  # type: ignore[attr-defined]
    for bad in (-1, 2**31 - 1):
        column[:] = bad
        number = ("row_offsets", "positions", "lengths").index(damage)
        tables._snapshot.epochs[0]["columns"][0, number] = column.ctypes.data
        assert fill_at_once(feed, 0, np.arange(2), noise(2, 16)) == OTHERWISE


@pytest.mark.parametrize(
    "short", ["labels", "segment_ids", "position_ids", "loss_weights", "mask", "source_ids"]
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, short: str) -> None:
    feed, memory = feed_of(tmp_path / "s"), noise(2, 8)
    owner = memory.rows() if hasattr(memory.rows(), short) else memory
    object.__setattr__(owner, short, arrays_of(memory)[short][:1])
    memory.labels = memory.rows().labels
    with pytest.raises(ValueError, match="assemble: buffer sizes do not fit"):
        fill_at_once(feed, 0, np.arange(2), memory)


def test_memory_that_is_read_only_is_refused(tmp_path: Path) -> None:
    feed, memory = feed_of(tmp_path / "s"), noise(2, 8)
    memory.input_ids.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fill_at_once(feed, 0, np.arange(2), memory)


@pytest.mark.parametrize("number", range(3, 16))
def test_tables_that_do_not_fit_together_are_refused(tmp_path: Path, number: int) -> None:
    feed, kernels = feed_of(tmp_path / "s"), native.extension()
    tables = feed._batcher._assembler._tables
    assert tables is not None and kernels is not None
    mixture = feed.order.eras[0].mixture
    assert isinstance(mixture, Mixture)
    views: list[Any] = [np.arange(2), *tables._snapshot.views]
    request: list[Any] = [0, 0, 4, *(bytes(memoryview(view)) for view in (*views, *mixture.tables))]
    memory = noise(2, 8)
    arrays = (memory.input_ids, memory.labels, None, None, None, None, None)
    # As it is, it is understood: the shard is to be opened.
    assert kernels.assemble(*request, 8, 0, 1, *arrays) == (0, 0)
    request[number] += b"?"
    with pytest.raises(ValueError, match="the tables of a feed do not fit together"):
        kernels.assemble(*request, 8, 0, 1, *arrays)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("first_shard", 1),
        ("first_shard", -1),
        ("num_shards", 2),
        ("num_shards", 0),
        ("num_rows", 0),
    ],
)
def test_tables_whose_sources_have_no_rows_or_other_shards_are_refused(
    tmp_path: Path, field: str, value: int
) -> None:
    feed, memory = feed_of(tmp_path / "s"), noise(2, 8)
    tables = feed._batcher._assembler._tables
    assert tables is not None and len(tables._snapshot.shards) == 1
    tables._snapshot.epochs[0][field] = value
    with pytest.raises(ValueError, match="the tables of a feed do not fit together"):
        fill_at_once(feed, 0, np.arange(2), memory)
