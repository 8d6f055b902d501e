"""Plans beside a store are verified with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.inspect.verify import verify_store


@pytest.mark.parametrize("column", ["row_offsets", "positions", "lengths", "flags", "plan.json"])
def test_a_flipped_bit_of_a_plan_is_found_and_named(tmp_path: Path, column: str) -> None:
    write_store(tmp_path / "s", [30, 5, 12, 7, 9])
    Feed(recipe_of(Source(name="s", path=tmp_path / "s", rows="packed"), seq_len=16))
    assert verify_store(tmp_path / "s").ok
    (plan,) = (tmp_path / "s" / ".plans").iterdir()
    damaged = bytearray((plan / column).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (plan / column).write_bytes(damaged)
    verdict = verify_store(tmp_path / "s")
    assert not verdict.ok
    assert [Path(str(problem.where)).name for problem in verdict.problems] == [column]


def test_an_unfinished_plan_is_none(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [30, 5])
    unfinished = tmp_path / "s" / ".plans" / "abc.12345678.tmp"
    unfinished.mkdir(parents=True)
    (unfinished / "plan.json").write_bytes(b"{")
    assert verify_store(tmp_path / "s").ok
