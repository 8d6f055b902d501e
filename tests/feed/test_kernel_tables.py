"""Plans whose numbers cannot be: the kernel and the general way make the same checks.

Whatever stands in a column, the kernel refuses a batch exactly where the reference raises,
and where it does not, both give the same rows.
"""

from __future__ import annotations

import atexit
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import recipe_of, write_store
from tests.feed.test_row_maker import arrays_of, noise

from tokenreel import native
from tokenreel.errors import DamageError
from tokenreel.feed.feed import Feed
from tokenreel.feed.kernel_tables import OTHERWISE
from tokenreel.feed.recipe import Source
from tokenreel.feed.row_maker import Assembler
from tokenreel.rows.episodes import Episodes
from tokenreel.rows.kinds import Rows
from tokenreel.rows.packed import Packed
from tokenreel.rows.row_plan import RowPlan
from tokenreel.rows.windows import Windows

pytestmark = pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")
SEQ_LEN = 16
COLUMNS: dict[Rows, tuple[str, ...]] = {
    "windows": ("kept",),
    "document_windows": ("kept",),
    "packed": ("row_offsets", "positions", "lengths", "flags"),
    "episodes": ("start", "length", "prefix_start", "prefix_length"),
}
# Borders of every type, and what leaves int64 when it is multiplied by a window or added to.
WILD = [0, 1, -1, 17, 18, 2**31 - 1, 2**31, 2**32 - 1, 2**40, -(2**40), 2**59, 2**60, -(2**60)]
WILD += [2**62, -(2**62), 2**63 - 1, -(2**63)]


@lru_cache
def store_path() -> Path:
    folder = mkdtemp(prefix="tokenreel-tables-")
    atexit.register(rmtree, folder, ignore_errors=True)
    path = Path(folder) / "s"
    write_store(path, [1] * 40 + [30, 5, 12, 7, 60, 2, 9] * 6, sidecar="turns", shard_tokens=100)
    return path


def damaged(plan: RowPlan, name: str, column: np.ndarray) -> RowPlan:
    """Return the plan with another column."""
    changed: dict[str, Any] = {name: column}
    if isinstance(plan, Windows):
        return replace(plan, kept=column)
    if isinstance(plan, Packed):
        return replace(plan, table=replace(plan.table, **changed))
    assert isinstance(plan, Episodes)
    return replace(plan, segments=replace(plan.segments, **changed))


def column_of(plan: RowPlan, name: str) -> np.ndarray:
    if isinstance(plan, Windows):
        kept = plan.kept
        return np.arange(plan.num_rows) if kept is None else kept.copy()
    owner: Any = plan.table if isinstance(plan, Packed) else plan.segments  # type: ignore[attr-defined]
    return np.array(getattr(owner, name))


def check_same_refusals(feed: Feed, plan: RowPlan) -> bool:
    """Fill all rows at once and by steps; return whether they were refused."""
    assembler = Assembler(
        [plan], feed.order, deal=feed.deal, seq_len=SEQ_LEN, pad_id=feed.recipe.pad_id
    )
    tables, num_refused = assembler._tables, 0
    assert tables is not None
    for step in range(feed.plans[0].num_rows // 4):
        at_once, by_steps = noise(4, SEQ_LEN), noise(4, SEQ_LEN)
        seats = np.arange(4)
        answer = tables.fill(feed.order, step, seats, at_once)
        try:
            assembler.fill_by_steps(step, seats, by_steps)
        except DamageError as error:
            assert answer == OTHERWISE, error
            num_refused += 1
            continue
        assert answer == 0
        expected = arrays_of(by_steps)
        for name, array in arrays_of(at_once).items():
            assert np.array_equal(array, expected[name]), name
    return num_refused > 0


@lru_cache
def feed_of(rows: Rows) -> Feed:
    source = Source(name="a", path=store_path(), rows=rows, shuffle=False)
    return Feed(recipe_of(source, seq_len=SEQ_LEN))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_ways_refuse_the_same_tables_and_agree_on_all_others(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from(sorted(COLUMNS)))
    name = data.draw(st.sampled_from(COLUMNS[rows]))
    feed = feed_of(rows)
    column = column_of(feed.plans[0], name)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(column) - 1))
        column[at] = np.array(data.draw(st.sampled_from(WILD))).astype(column.dtype)
    check_same_refusals(feed, damaged(feed.plans[0], name, column))


@pytest.mark.parametrize("rows", COLUMNS)
def test_an_intact_table_is_refused_by_neither(rows: Rows) -> None:
    feed = feed_of(rows)
    for name in COLUMNS[rows]:
        assert not check_same_refusals(
            feed, damaged(feed.plans[0], name, column_of(feed.plans[0], name))
        )


def test_row_offsets_that_run_backwards_are_refused_by_both() -> None:
    """The kernel once made such a row a row of padding."""
    feed = feed_of("packed")
    column = column_of(feed.plans[0], "row_offsets")
    column[2], column[3] = column[3], column[2]
    assert check_same_refusals(feed, damaged(feed.plans[0], "row_offsets", column))


@pytest.mark.parametrize("bad", [2**60, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("rows", ["windows", "document_windows"])
def test_a_kept_window_whose_first_token_leaves_int64_is_refused_by_both(
    rows: Rows, bad: int
) -> None:
    """16 · 2**60 is 0 in int64: the kernel once showed the first window for it."""
    feed = feed_of(rows)
    column = column_of(feed.plans[0], "kept")
    column[1] = bad
    assert check_same_refusals(feed, damaged(feed.plans[0], "kept", column))
