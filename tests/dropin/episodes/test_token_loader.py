"""Contract 000's token streams: windows of any layout, at random and the same for a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.dropin.episodes.test_episode_loader import Stream
from tests.dropin.making import config, put_files

from tokenreel import StoreWriter
from tokenreel.dropin import GPTDataLoader
from tokenreel.errors import ConfigError
from tokenreel.testing import check_resume


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.arange(50, dtype="<u2").tofile(tmp_path / "train.bin")
    np.arange(1000, 1020, dtype="<u2").tofile(tmp_path / "val.bin")
    return tmp_path


def test_rows_are_windows_and_y_is_x_shifted(folder):
    loader = GPTDataLoader(config(), None, folder, dtype="uint16")
    for split, low, high in (("train", 0, 50), ("val", 1000, 1020)):
        x, y = loader.get_batch(split)
        assert x.shape == y.shape == (4, 6) and x.dtype == y.dtype == torch.int64
        assert x.is_contiguous() and y.is_contiguous()
        assert torch.equal(x[:, 1:], y[:, :-1]) and torch.equal(y, x + 1)
        assert low <= int(x.min()) and int(y.max()) < high


def test_every_window_is_as_likely_as_any_other(folder):
    loader = GPTDataLoader(config(batch_size=500), None, folder, dtype="uint16")
    starts = np.concatenate([loader.get_batch()[0][:, 0].numpy() for _ in range(20)])
    counts = np.bincount(starts, minlength=50)
    assert counts[44:].sum() == 0  # 44 windows of 7 tokens
    expected = len(starts) / 44
    assert abs(counts[:44] - expected).max() < 5 * np.sqrt(expected)


def test_windows_run_across_shards(tmp_path):
    put_files(tmp_path, {"a_0.npy": range(5), "a_1.npy": range(5, 9), "a_2.npy": range(9, 30)})
    loader = GPTDataLoader(config(batch_size=200), None, tmp_path)
    x, y = loader.get_batch()
    assert torch.equal(y, x + 1)
    assert set(x[:, 0].tolist()) == set(range(24))


def test_a_native_store_is_read_too(tmp_path):
    with StoreWriter(tmp_path / "s", vocab_size=100) as writer:
        writer.add(range(60))
        writer.add(range(30), split="val")
    loader = GPTDataLoader(config(), None, tmp_path / "s")
    for split in ("train", "val"):
        x, y = loader.get_batch(split)
        assert torch.equal(y, x + 1)


def test_the_seed_decides_and_splits_have_draws_of_their_own(folder):
    def starts(seed: int, splits: str) -> list[list[int]]:
        loader = GPTDataLoader(config(epoch_seed=seed), None, folder, dtype="uint16")
        names = {"t": "train", "v": "val"}
        return [loader.get_batch(names[letter])[0][:, 0].tolist() for letter in splits]

    assert starts(1, "ttt") == starts(1, "ttt") != starts(2, "ttt")
    assert starts(1, "tvtvt")[::2] == starts(1, "ttt")


def test_it_resumes_at_every_batch(folder):
    check_resume(lambda: Stream(GPTDataLoader(config(), None, folder, dtype="uint16")), steps=8)


def test_a_missing_val_is_an_error_when_it_is_asked_for(tmp_path):
    np.arange(50, dtype="<u2").tofile(tmp_path / "train.bin")
    loader = GPTDataLoader(config(), None, tmp_path, dtype="uint16")
    with pytest.raises(ConfigError, match="no split 'val'"):
        loader.get_batch("val")


def test_a_stream_shorter_than_a_window_is_refused(tmp_path):
    np.arange(6, dtype="<u2").tofile(tmp_path / "train.bin")
    with pytest.raises(ConfigError) as caught:
        GPTDataLoader(config(), None, tmp_path, dtype="uint16")
    assert str(caught.value) == (
        f"{tmp_path}: split train is shorter than a window of block_size + 1 tokens "
        "(expected >= 7 tokens, got 6)"
    )
