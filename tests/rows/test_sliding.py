"""Sliding windows: every start inside every shard once, and none that leaves its shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import open_store
from tokenreel.errors import ConfigError
from tokenreel.feed.ids import IdRows
from tokenreel.rows.sliding import SlidingWindows


def write(folder: Path, sizes: list[int]) -> list[np.ndarray]:
    shards = [1000 * number + np.arange(size) for number, size in enumerate(sizes)]
    for number, tokens in enumerate(shards):
        tokens.astype("<u2").tofile(folder / f"shard_{number:05d}.bin")
    return shards


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=40), seq_len=st.integers(1, 12))
def test_the_rows_are_all_windows_of_all_shards(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seq_len: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards = write(folder, sizes)
    split = open_store(folder, layout="flat", dtype="uint16")["train"]
    wanted = [
        shard[start : start + seq_len + 1].tolist()
        for shard in shards
        for start in range(len(shard) - seq_len)
    ]
    if not wanted:
        with pytest.raises(ConfigError, match=r"no shard has a window .*in the longest"):
            SlidingWindows(split=split, seq_len=seq_len)
        return
    windows = SlidingWindows(split=split, seq_len=seq_len)
    x, y = IdRows(split, seq_len).gather(windows.pieces(np.arange(windows.num_rows)))
    assert np.concatenate((x[:, :1], y), axis=1).tolist() == wanted
    assert (x[:, 1:] == y[:, :-1]).all()
