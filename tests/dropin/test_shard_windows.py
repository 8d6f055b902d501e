"""Windows inside shards, by slices and by single tokens: the rows of contracts 003 and 002."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows.corpora import write_store

from tokenreel import native, open_store
from tokenreel.dropin.id_rows import IdRows
from tokenreel.dropin.shard_windows import ShardWindows
from tokenreel.errors import ConfigError


@pytest.fixture(params=["native", "numpy"])
def kernel(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "extension", lambda: None)


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
    windows = ShardWindows(split, seq_len + 1, stride=1)
    assert windows.num_rows == len(wanted)
    if not wanted:
        return
    x, y = IdRows(split, seq_len).gather(windows.pieces(np.arange(windows.num_rows)))
    assert np.concatenate((x[:, :1], y), axis=1).tolist() == wanted
    assert (x[:, 1:] == y[:, :-1]).all()


def test_slices_stay_within_their_shard(tmp_path, kernel):
    split = write_store(tmp_path / "s", [30])["train"]  # shards of 12 tokens
    slices = ShardWindows(split, 5, stride=5)
    assert slices.num_rows == 2 + 2 + 1
    pieces = slices.pieces(np.array([4, 1, 2]))
    assert pieces.shard.tolist() == [2, 0, 1] and pieces.start.tolist() == [0, 5, 0]
    assert set(pieces.length.tolist()) == {5}
    inputs, labels = IdRows(split, 4).gather(pieces)
    for row, start in enumerate((24, 5, 12)):
        tokens = split.read(start, start + 5).tolist()
        assert (inputs[row].tolist(), labels[row].tolist()) == (tokens[:-1], tokens[1:])


@pytest.mark.parametrize("row", [-1, 5, 2**62])
def test_a_slice_that_is_not_there_is_an_index_error(tmp_path, row):
    slices = ShardWindows(write_store(tmp_path / "s", [30])["train"], 5, stride=5)
    with pytest.raises(IndexError, match="no such row among 5"):
        slices.pieces(np.array([0, row]))


def test_a_slice_of_two_tokens_is_one_and_of_one_is_none(tmp_path: Path) -> None:
    split = write_store(tmp_path / "s", [5])["train"]
    assert ShardWindows(split, 2, stride=2).pieces(np.arange(2)).start.tolist() == [0, 2]
    assert ShardWindows(split, 5, stride=5).num_rows == 1
    with pytest.raises(ConfigError, match="a slice needs an input and a label"):
        ShardWindows(split, 1, stride=1)
    assert ShardWindows(split, 6, stride=6).num_rows == 0
