"""A split: shards seen as one stream of tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import write_store

from tokenreel import open_store
from tokenreel.store.split import Split


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """Tokens 1 to 50 in shards of twenty."""
    write_store(tmp_path / "s", [20, 20, 10], shard_tokens=20)
    split = open_store(tmp_path / "s")["train"]
    assert split.token_starts.tolist() == [0, 20, 40, 50]
    return split


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 20), (0, 1), (3, 7), (20, 40), (19, 20), (40, 50), (49, 50)]
)
def test_tokens_within_a_shard_are_a_view_of_it(split: Split, start: int, stop: int) -> None:
    tokens = split.read(start, stop)
    assert tokens.tolist() == list(range(start + 1, stop + 1))
    shard = split.shards[start // 20]
    assert np.shares_memory(tokens, shard.read(0, shard.num_tokens))


@pytest.mark.parametrize(("start", "stop"), [(19, 21), (0, 50), (39, 41), (20, 41)])
def test_tokens_of_several_shards_are_a_copy(split: Split, start: int, stop: int) -> None:
    tokens = split.read(start, stop)
    assert tokens.tolist() == list(range(start + 1, stop + 1))
    assert not any(np.shares_memory(tokens, s.read(0, s.num_tokens)) for s in split.shards)


@pytest.mark.parametrize("at", [0, 7, 20, 40, 50])
def test_no_tokens_are_read_anywhere_up_to_the_end(split: Split, at: int) -> None:
    assert split.read(at, at).tolist() == []


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (4, 3), (0, 51), (51, 51)])
def test_tokens_that_are_not_there_are_an_index_error(split: Split, start: int, stop: int) -> None:
    with pytest.raises(IndexError, match=f"split train: no tokens {start} to {stop} of 50"):
        split.read(start, stop)
