"""The one door tells the layouts apart, and says what it looked for."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tokenreel import StoreWriter, open_store
from tokenreel.errors import ConfigError, LayoutError


@pytest.fixture
def every_layout(tmp_path, episodes, megatron, sft, pretrain):
    with StoreWriter(tmp_path / "native", vocab_size=10) as writer:
        writer.add([1, 2])
    megatron(tmp_path / "megatron" / "p", [[[1, 2]]])
    episodes(tmp_path / "episodes" / "train", [[1, 2]])
    sft(tmp_path / "cache-sft", {"train": [[1, 2]]}, None)
    pretrain(tmp_path / "cache-pretrain", {"train": [[1, 2]]})
    (tmp_path / "bare").mkdir()
    np.array([1, 2], "<u4").tofile(tmp_path / "bare" / "train.bin")
    (tmp_path / "flat").mkdir()
    np.save(tmp_path / "flat" / "a.npy", np.array([1, 2], "<u2"))
    return tmp_path


NAMES = ["native", "megatron", "episodes", "cache-sft", "cache-pretrain", "bare", "flat"]


@pytest.mark.parametrize("name", NAMES)
def test_each_layout_is_recognised_and_opens_by_name_too(every_layout, name):
    assert open_store(every_layout / name).layout == name
    store = open_store(every_layout / name, layout=name)
    assert store["train"].read(0, 2).tolist() == [1, 2]
    store.check_sizes()


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_fingerprint_survives_a_move_and_notices_another_token(every_layout, name):
    before = open_store(every_layout / name).fingerprint
    moved = shutil.copytree(every_layout / name, every_layout / "elsewhere")
    assert open_store(moved).fingerprint == before
    shard = open_store(moved)["train"].shards[0].token_file
    data = bytearray(shard.path.read_bytes())
    data[shard.offset] ^= 3
    shard.path.write_bytes(bytes(data))
    assert open_store(moved).fingerprint != before


@pytest.mark.parametrize("asked", [name for name in NAMES if name not in ("flat", "bare")])
def test_a_layout_asked_for_by_a_wrong_name_is_an_error(every_layout, asked):
    with pytest.raises(Exception, match=r"flat") as caught:
        open_store(every_layout / "flat", layout=asked)
    assert type(caught.value).__module__ == "tokenreel.errors"


def test_a_folder_of_none_says_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LayoutError) as caught:
        open_store(tmp_path)
    for reason in (
        "native: no manifest.json",
        "megatron: no pair of .bin and .idx files",
        "episodes: no tokens.bin with episodes.idx",
        "cache-sft: no train_tokens.bin",
        "cache-pretrain: no meta.json",
        "bare: no train.bin or val.bin",
        "flat: no *.npy or *.bin files",
    ):
        assert reason in str(caught.value)


@pytest.mark.parametrize("name", ["gone", "gone.npy", "gone.bin", "gone/deeper"])
def test_a_path_that_is_not_there_is_said_to_be_not_there(tmp_path, name):
    with pytest.raises(LayoutError, match="no such file or folder"):
        open_store(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_the_current_folder_opens_too(every_layout, monkeypatch, name):
    monkeypatch.chdir(every_layout / name)
    assert open_store(".").layout == name
    assert len(open_store(".").fingerprint) == 64


def test_a_file_of_none_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LayoutError, match="no layout that tokenreel knows"):
        open_store(tmp_path / "notes.txt")


def test_an_unknown_layout_name_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown layout"):
        open_store(tmp_path, layout="parquet")


def test_a_pretraining_cache_is_not_taken_for_flat_shards(tmp_path, pretrain):
    path = pretrain(tmp_path / "web", {"train": [[1, 2]], "val": [[3, 4]]})
    assert open_store(path).layout == "cache-pretrain"
    (path / "meta.json").unlink()
    store = open_store(path, dtype="uint16")
    assert (store.layout, list(store)) == ("flat", ["train", "val"])
