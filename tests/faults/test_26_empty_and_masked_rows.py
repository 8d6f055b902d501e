"""Fault 26, the rows' half: empty, too long, all masked: counted, and an empty result is an error.

What a chat or a document that is too long becomes is in tests/rows; here, what a feed says.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import StoreWriter
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.rows.kinds import Rows

KINDS = ("windows", "document_windows", "episodes", "packed")


@pytest.mark.parametrize("rows", KINDS)
def test_a_split_with_nothing_to_train_on_is_refused_at_start(tmp_path: Path, rows: Rows) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=100, weights="uint8") as writer:
        for _ in range(3):
            writer.add(range(20), weights=[0] * 20)
    with pytest.raises(ConfigError, match="so there are no rows"):
        Feed(recipe_of(Source(name="a", path=tmp_path / "s", rows=rows)))


@pytest.mark.parametrize("rows", KINDS)
def test_a_split_of_one_token_is_refused_at_start(tmp_path: Path, rows: Rows) -> None:
    write_store(tmp_path / "s", [0, 1, 0])
    with pytest.raises(ConfigError, match=r"too few tokens for a window|so there are no rows"):
        Feed(recipe_of(Source(name="a", path=tmp_path / "s", rows=rows)))


@pytest.mark.parametrize("rows", KINDS)
def test_the_account_adds_up_whatever_the_documents(tmp_path: Path, rows: Rows) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=100, weights="uint8") as writer:
        writer.add([], weights=[])
        writer.add([1], weights=[1])
        writer.add(range(50), weights=[1] * 50)  # longer than a row
        writer.add(range(20), weights=[0] * 20)  # all masked
        writer.add(range(5), weights=[1, 0, 0, 0, 0])  # only its first token, which is no target
        writer.add(range(6), weights=[0, 0, 0, 0, 0, 1])
    feed = Feed(recipe_of(Source(name="a", path=tmp_path / "s", rows=rows), global_batch_size=1))
    plan = feed.plans[0]
    ledger = plan.ledger
    assert ledger["tokens"] == 82
    assert ledger["placed"] + ledger["truncated"] + ledger["dropped"] == 82
    assert ledger["placed"] + ledger["overlap"] + ledger["padding"] == ledger["slots"]
    assert ledger["trained"] + ledger["masked"] == ledger["placed"] + ledger["overlap"]
    assert ledger["dropped"] > 0
    batches = [feed.batch(step) for step in range(plan.num_rows)]
    assert all(batch.loss_mask.any() for batch in batches)
    assert sum(int(batch.loss_mask.sum()) for batch in batches) == ledger["trained"]
