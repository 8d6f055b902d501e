"""Write-through: what streams becomes a store, whole and once, however often it is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builder.making import places, tree
from tests.stream.making import batches_of, config_of, take, texts_of, write_texts

from tokenreel import Feed, Recipe, Source, StoreWriter, build, open_store
from tokenreel.errors import BusyError, ExistsError, MismatchError
from tokenreel.inspect.verify import verify_store
from tokenreel.testing import equal

TEXTS = [text for text in texts_of(120) if text]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "a.jsonl", TEXTS)


def caching(path: Path, out: Path, **settings: Any) -> dict[str, Any]:
    options = {"shuffle": False, "stream_cache_shard_bytes": 600, **settings}
    return config_of(path, stream_cache_to=str(out), **options)


def tokens_of(store: Path) -> list[list[int]]:
    return [document.tokens.tolist() for document in open_store(store)["train"].documents()]


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_the_store_is_that_of_a_build(path: Path, tmp_path: Path, mode: str) -> None:
    build([path], out=tmp_path / "built", tokenizer="byte", shard_size=600)
    list(batches_of(caching(path, tmp_path / "cache", packing_mode=mode, repeat=False)))
    assert verify_store(tmp_path / "cache").ok
    built, cached = open_store(tmp_path / "built"), open_store(tmp_path / "cache")
    assert tokens_of(tmp_path / "cache") == tokens_of(tmp_path / "built")
    for name in ("train/shard_00000.bin", "train/shard_00003.docs", "train/shard_00002.origins"):
        assert (cached.path / name).read_bytes() == (built.path / name).read_bytes()
    assert cached["train"].document(7).provenance == built["train"].document(7).provenance


def test_the_first_pass_commits_and_a_feed_reads_it(path: Path, tmp_path: Path) -> None:
    config = caching(path, tmp_path / "cache", shuffle=True, packing_mode="bin")
    stream = batches_of(config)
    while stream.get_state()["lanes"]["0"]["place"]["epoch"] == 0:
        next(stream)
    source = Source(
        name="a", path=tmp_path / "cache", rows="packed", packing="first_fit", shuffle=False
    )
    feed = Feed(Recipe(seq_len=24, global_batch_size=4, sources=[source], pad_id=256))
    assert feed.batch(3).input_ids.shape == (4, 24)
    assert sorted(map(tuple, tokens_of(tmp_path / "cache"))) == sorted(
        (*text.encode(), 256) for text in TEXTS
    )
    take(stream, 3)  # the second epoch goes on without it


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_broken_off_anywhere_it_ends_with_the_same_bytes(
    path: Path, tmp_path: Path, mode: str
) -> None:
    options: dict[str, Any] = {"packing_mode": mode, "repeat": False, "shuffle": True}
    plain = list(batches_of(config_of(path, **options)))
    list(batches_of(caching(path, tmp_path / "whole", **options)))
    out, state, step = tmp_path / "cache", None, 0
    finished: dict[str, Any] = {}
    while step < len(plain):
        stream = batches_of(caching(path, out, **options), group_characters=90)
        if state is not None:
            stream.set_state(state)
        for batch in take(stream, 4):
            assert np.array_equal(batch.labels, plain[step].labels)
            step += 1
        state = json.loads(json.dumps(stream.get_state()))
        take(stream, 2)  # further than the state knows
        stream.close()
        assert finished.items() <= (finished := places(out, "train/*.bin")).items()
    assert len(finished) > 3
    assert tree(out) == tree(tmp_path / "whole")


def test_a_stream_begun_anew_keeps_what_is_there(path: Path, tmp_path: Path) -> None:
    config = caching(path, tmp_path / "cache", repeat=False)
    stream = batches_of(config)
    take(stream, 20)
    stream.close()
    before = places(tmp_path / "cache", "train/*.bin")
    assert before
    list(batches_of(config))
    assert before.items() <= places(tmp_path / "cache", "train/*.bin").items()
    assert tokens_of(tmp_path / "cache") == [[*text.encode(), 256] for text in TEXTS]
    finished = tree(tmp_path / "cache")
    assert list(batches_of(config))  # and with the store finished nothing is written
    assert tree(tmp_path / "cache") == finished


def test_other_stores_and_other_writers_are_left_alone(path: Path, tmp_path: Path) -> None:
    build([path], out=tmp_path / "built", tokenizer="byte")
    with pytest.raises(ExistsError, match="a finished store is here"):
        next(batches_of(caching(path, tmp_path / "built")))
    first = batches_of(caching(path, tmp_path / "cache"))
    next(first)
    with pytest.raises(BusyError):
        next(batches_of(caching(path, tmp_path / "cache")))
    first.close()
    with pytest.raises(MismatchError, match="an unfinished build of something else is here"):
        next(batches_of(caching(path, tmp_path / "cache", tokenizer_max_doc_tokens=5)))


def test_a_state_without_its_store_is_refused(path: Path, tmp_path: Path) -> None:
    stream = batches_of(caching(path, tmp_path / "cache"), group_characters=90)
    take(stream, 20)
    state = stream.get_state()
    stream.close()
    other = batches_of(caching(path, tmp_path / "elsewhere"))
    other.set_state(state)
    with pytest.raises(MismatchError, match="not the one that this state was saved with"):
        next(other)


RUN = """
import json, sys
from tokenreel.stream import read_config
from tokenreel.stream.stream_batches import Batches, OpenedStream
stream = Batches(OpenedStream(read_config(json.loads(sys.argv[1]))))
for batch in stream:
    print(json.dumps(stream.get_state()), flush=True)
"""


def test_killed_for_real_it_ends_with_the_same_bytes(path: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"packing_mode": "bin", "repeat": False, "packing_buffer_docs": 5}
    plain = list(batches_of(caching(path, tmp_path / "whole", **options)))
    config = caching(path, tmp_path / "cache", **options)
    words = [sys.executable, "-c", RUN, json.dumps(config)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        state = [json.loads(process.stdout.readline()) for _ in range(len(plain) // 2)][-1]
        process.kill()
    resumed = batches_of(config)
    resumed.set_state(state)
    assert equal(list(resumed), plain[state["step"] :])
    assert tree(tmp_path / "cache") == tree(tmp_path / "whole")


def test_a_writer_says_what_a_crash_would_leave(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=10, shard_bytes=8) as writer:
        safe = []
        for length in (3, 2, 2, 9, 1):
            writer.add([1] * length)
            safe.append(writer.num_safe())
    assert safe == [0, 1, 1, 3, 3]  # shards of 4 tokens: 3 | 2 + 2 | 4 + 4 of 9 | …
