"""Pretraining caches of contract 002."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tokenreel import open_store
from tokenreel.errors import DamageError, FormatError, StoreError, VocabularyError

SPLITS = {"train": [[1, 2, 0, 3], [4, 0]], "val": [[5]]}


def test_shards_are_one_stream_per_split(tmp_path, pretrain):
    store = open_store(pretrain(tmp_path / "web", SPLITS, {"special_token_ids": {"eot": 0}}))
    assert (store.layout, store.dtype_source) == ("cache-pretrain", "meta.json")
    assert (store.dtype, store.vocab_size) == (np.uint16, 1000)
    assert store["train"].read(0, 6).tolist() == [1, 2, 0, 3, 4, 0]
    assert store["val"].read(0, 1).tolist() == [5]
    assert store.tokenizer == {"special_token_ids": {"eot": 0}}


def test_documents_are_found_by_their_end_on_request(tmp_path, pretrain, texts):
    path = pretrain(tmp_path / "web", SPLITS)
    assert open_store(path).num_documents is None
    with pytest.raises(StoreError, match="eos_id"):
        open_store(path).document(0)
    store = open_store(path, eos_id=0)
    assert texts(store) == [[1, 2, 0], [3], [4, 0]]
    assert texts(store, "val") == [[5]]


def test_many_shards_come_in_natural_order(tmp_path, pretrain):
    path = pretrain(tmp_path / "web", {"train": [[i] for i in range(12)]})
    for number in range(12):
        old = path / "train" / f"shard_{number:05d}.bin"
        old.rename(old.with_name(f"shard_{number}.bin"))
    assert open_store(path)["train"].read(0, 12).tolist() == list(range(12))


@pytest.mark.parametrize("totals", [{"train_tokens": 7}, {"totals": {"val_tokens": 2}}])
def test_totals_are_checked(tmp_path, pretrain, totals):
    path = pretrain(tmp_path / "web", SPLITS)
    meta = json.loads((path / "meta.json").read_text())
    for name in ("train_tokens", "val_tokens"):
        meta.pop(name)
    (path / "meta.json").write_text(json.dumps({**meta, **totals}))
    with pytest.raises(DamageError, match=r"as meta\.json declares"):
        open_store(path)


def test_a_lost_shard_and_a_lost_split_show_at_open(tmp_path, pretrain):
    path = pretrain(tmp_path / "web", SPLITS)
    (path / "val" / "shard_00000.bin").unlink()
    with pytest.raises(DamageError, match=r"web/val: .*expected 1 tokens, got 0 tokens"):
        open_store(path)
    (path / "val").rmdir()
    with pytest.raises(DamageError, match="web/val"):
        open_store(path)


@pytest.mark.parametrize("size", [0, 3, 7, 9])
def test_a_shard_of_a_wrong_size_is_damage(tmp_path, pretrain, size):
    path = pretrain(tmp_path / "web", SPLITS)
    (path / "train" / "shard_00000.bin").write_bytes(bytes(size))
    with pytest.raises(DamageError, match=r"shard_00000\.bin"):
        open_store(path)


def test_a_cache_that_was_announced_and_never_built_says_so(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "meta.json").write_text('{"dataset_name": "gutenberg", "built": false}')
    with pytest.raises(DamageError, match="the cache has no shards"):
        open_store(tmp_path)


def test_the_argument_wins_over_meta_json(tmp_path, pretrain):
    path = pretrain(tmp_path / "web", {"train": [[1, 0, 2, 0]]}, {"train_tokens": 2})
    store = open_store(path, dtype="uint32", vocab_size=3)
    assert (store.dtype_source, store.vocab_size) == ("argument", 3)
    assert store["train"].read(0, 2).tolist() == [1, 2]


def test_ids_outside_the_declared_vocabulary_are_refused(tmp_path, pretrain):
    path = pretrain(tmp_path / "web", {"train": [[1], [1000]]})
    with pytest.raises(VocabularyError, match=r"shard_00001.bin.*0 to 999, got 1,000"):
        open_store(path)


@pytest.mark.parametrize("dtype", ["uint16-be", "float32", ">u2", 7, ""])
def test_a_dtype_that_is_none_is_refused(tmp_path, pretrain, dtype):
    path = pretrain(tmp_path / "web", SPLITS, {"token_dtype": dtype})
    with pytest.raises(FormatError, match=r"meta\.json: unknown token dtype"):
        open_store(path)
