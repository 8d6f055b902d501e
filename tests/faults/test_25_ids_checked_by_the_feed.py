"""Fault 25 at the feed: check_ids refuses a shard with a wrong id when it is first touched."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.feed.making import recipe_of, write_store

from tokenreel import native
from tokenreel.errors import ConfigError, VocabularyError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.store import shard
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.testing import equal

VOCAB = 500
OPENS_WHAT_IT_SHOWS = native.extension() is not None  # numpy touches all of a few shards at once


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Five shards of 80 tokens, ids 1 to 400."""
    write_store(tmp_path / "s", [40] * 10, shard_tokens=80, vocab_size=VOCAB)
    return tmp_path / "s"


def in_order(path: Path, **options: object) -> Recipe:
    source = Source(name="a", path=path, shuffle=False, **options)  # type: ignore[arg-type]
    return recipe_of(source, global_batch_size=5)


def spoil(path: Path, number: int, token: int, value: int) -> Path:
    """Put an id into a shard, as a disk might."""
    file = path / "train" / f"shard_{number:05d}.bin"
    tokens = np.fromfile(file, "<u2")
    tokens[token] = value
    tokens.tofile(file)
    return file


@pytest.mark.parametrize("mode", ["mmap", "pread"])
@pytest.mark.parametrize("rows", ["windows", "packed"])
def test_an_id_outside_the_stores_vocabulary_is_refused(store: Path, rows: str, mode: str) -> None:
    file = spoil(store, 3, 17, VOCAB)
    recipe = in_order(store, rows=rows, mode=mode)
    unchecked = Feed(recipe)
    assert max(int(unchecked.batch(step).input_ids.max()) for step in range(10)) == VOCAB
    feed = Feed(recipe, check_ids=True)
    if mode == "pread" or OPENS_WHAT_IT_SHOWS:  # the first shards are as they should be
        assert equal(feed.batch(0), unchecked.batch(0))
    with pytest.raises(VocabularyError) as caught:
        for step in range(1, 10):
            feed.batch(step)
    assert caught.value.where == str(file)
    assert caught.value.actual == VOCAB
    assert caught.value.expected == f"0 to {VOCAB - 1}"
    assert caught.value.what == "token 17 is outside the vocabulary"


def test_a_shard_is_refused_at_its_first_touch_whatever_row_is_shown(store: Path) -> None:
    spoil(store, 0, 79, VOCAB)
    with pytest.raises(VocabularyError, match="token 79 is outside the vocabulary"):
        Feed(in_order(store), check_ids=True).rows(0, [0])  # tokens 0 to 8


def test_the_vocabulary_of_a_model_may_be_smaller_than_the_stores(store: Path) -> None:
    feed = Feed(in_order(store), check_ids=200)
    for step in range(3 if OPENS_WHAT_IT_SHOWS else 0):
        feed.batch(step)
    with pytest.raises(VocabularyError, match=r"expected 0 to 199, got 200\)"):
        feed.batch(4)
    Feed(in_order(store), check_ids=401).batch(9)


def test_a_sound_store_gives_the_same_batches_and_is_read_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Path] = []
    check = shard.check_file_ids

    def note(tokens: ArrayFile, limit: int | None) -> None:
        looked_at.append(tokens.path)
        check(tokens, limit)

    monkeypatch.setattr(shard, "check_file_ids", note)
    plain, checked = Feed(in_order(store)), Feed(in_order(store), check_ids=True)
    assert looked_at == []
    for step in range(30):
        assert equal(plain.batch(step), checked.batch(step))
    assert sorted(looked_at) == sorted((store / "train").glob("*.bin"))
    assert checked.fingerprint == plain.fingerprint


def test_a_negative_id_is_outside_every_vocabulary(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2, -7, 3] * 20, np.int32))
    recipe = in_order(tmp_path, vocab_size=None)
    with pytest.raises(VocabularyError, match=r"a\.npy: token 2 is outside .*got -7"):
        Feed(recipe, check_ids=10).batch(0)


@pytest.mark.parametrize("check_ids", [True, 0, -1])
def test_a_vocabulary_that_is_none_is_refused(tmp_path: Path, check_ids: bool | int) -> None:
    np.save(tmp_path / "a.npy", np.arange(80, dtype=np.uint16))
    with pytest.raises(ConfigError, match="source 'a': there is no vocabulary to check ids agai"):
        Feed(in_order(tmp_path), check_ids=check_ids)


def test_a_feed_sent_to_another_process_checks_there_too(store: Path) -> None:
    spoil(store, 0, 3, VOCAB)
    sent = pickle.loads(pickle.dumps(Feed(in_order(store), check_ids=True)))
    with pytest.raises(VocabularyError):
        sent.batch(0)
