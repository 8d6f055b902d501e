"""Contract 004: "a JSON-serializable state dict containing … packer buffer contents".

It is there "so resume does not rely on `.skip()` or re-streaming": what a packer holds is
neither read nor encoded again.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builder.faulty import Faulty
from tests.stream.making import batches_of, config_of, take, texts_of

from tokenreel.store.document_batch import DocumentBatch
from tokenreel.stream import StreamPipeline
from tokenreel.stream.arrivals import Bookmark
from tokenreel.stream.encoded_documents import EncodedDocuments, from_text
from tokenreel.stream.stream_batches import Batches
from tokenreel.stream.stream_state import stats_of
from tokenreel.testing import equal
from tokenreel.text.sources import InMemory
from tokenreel.text.sources.source_protocol import Cursor, Range, Step
from tokenreel.text.tokenizers import Encoded

TEXTS = [f"{number:03d} {text}" for number, text in enumerate(texts_of(40))]


class CountedTexts(InMemory):
    """Documents in memory, and the numbers of those that were read."""

    read_rows: list[int]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield the records, each noted."""
        for record, following in super().steps(part, cursor=cursor):
            self.read_rows.append(following["row"] - 1)
            yield record, following


class CountedBytes(Faulty):
    """The byte tokenizer, and the texts that were encoded."""

    encoded: list[str]

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode, and note what."""
        self.encoded += texts
        return super().encode_batch(texts)


class Counted:
    """A stream whose documents and texts are counted."""

    def __init__(self, state: Any = None, **settings: Any) -> None:
        self.source, self.tokenizer = CountedTexts(TEXTS), CountedBytes("none")
        self.source.read_rows, self.tokenizer.encoded = [], []
        config = config_of(Path("none"), repeat=False, **settings)
        self.batches: Batches = batches_of(
            config, source=self.source, tokenizer=self.tokenizer, group_characters=400
        )
        if state is not None:
            self.batches.set_state(json.loads(json.dumps(state)))

    @property
    def read(self) -> list[str]:
        return [TEXTS[row] for row in self.source.read_rows]


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_nothing_that_was_consumed_is_read_or_encoded_again(mode: str) -> None:
    settings = {"packing_mode": mode, "shuffle": False}
    steps = sum(1 for _ in Counted(**settings).batches)
    waited = 0
    for step in range(1, steps):
        first = Counted(**settings)
        take(first.batches, step)
        state = first.batches.get_state()
        rest = Counted(state, **settings)
        assert rest.read == rest.tokenizer.encoded == []
        waited += bool(state["lanes"]["0"]["buffer"])
        list(rest.batches)
        assert first.read + rest.read == TEXTS
        assert first.tokenizer.encoded + rest.tokenizer.encoded == TEXTS
    assert waited > steps / 2  # else there was nothing to lose


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_with_shuffling_one_shuffle_block_is_read_again_and_nothing_encoded(mode: str) -> None:
    settings = {"packing_mode": mode, "shuffle_buffer_size": 20, "num_lanes": 2}
    first = Counted(**settings)
    take(first.batches, 3)
    rest = Counted(first.batches.get_state(), **settings)
    list(rest.batches)
    assert sorted(first.tokenizer.encoded + rest.tokenizer.encoded) == TEXTS
    again = len(first.read) + len(rest.read) - 2 * len(TEXTS)  # a lane passes over the other's
    assert 0 < again <= 2 * 2 * 20


def test_prefetched_batches_are_not_in_the_state() -> None:
    """What is made ahead was not handed over: the state is that without prefetch."""
    states = []
    for prefetch in (0, 4):
        config = config_of(Path("none"), packing_mode="bin", grain_prefetch=prefetch)
        with StreamPipeline(config, source=InMemory(TEXTS)) as pipeline:
            take(pipeline, 3)
            states.append(pipeline.get_state())
    assert states[0] == states[1]


def stdlib_texts() -> list[str]:
    """Return real text: modules of the standard library, in pieces of 4,000 characters."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = "".join(file.read_text(errors="ignore") for file in files[:60])
    return [text[at : at + 4000] for at in range(0, len(text), 4000)]


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_state_is_under_a_megabyte_at_the_defaults(mode: str) -> None:
    config = {
        "data": {
            "hf_dataset": "none",
            "packing_mode": mode,
            "shuffle": False,
            "tokenizer": {"kind": "byte"},
        }
    }
    pipeline = StreamPipeline(config, source=InMemory(stdlib_texts()))
    next(pipeline)
    state = pipeline.get_state()
    held = from_text(state["lanes"]["0"]["buffer"], vocab_size=263, after=Bookmark())
    # Bytes: as many tokens as text can have. Bins wait for 128 rows of them, and a document.
    least, most = (500_000, 530_000) if mode == "sequential" else (128 * 1025, 128 * 1025 + 4000)
    assert least <= len(held.ids) < most
    assert len(json.dumps(state)) < 400_000


@pytest.mark.parametrize("documents", [1, 200])
def test_bins_of_long_documents_hold_at_most_one_beyond_128_rows(documents: int) -> None:
    """Contract 004: "a JSON-serializable state dict containing … packer buffer contents".

    It has to stay a state that a checkpoint can keep: 4/3 of the text's bytes at the most, and
    of one long document neither 128 copies, one for each that the buffer may hold, nor two.
    """
    size = 1_000_000 if documents == 1 else 20_000
    drawn = random.Random(0)
    texts = [base64.b64encode(drawn.randbytes(size // 4 * 3)).decode() for _ in range(documents)]
    data = {"backend": "local_text", "packing_mode": "bin", "tokenizer": {"kind": "byte"}}
    config = {"data": {**data, "local_text": texts[0]}}
    with StreamPipeline(config, source=InMemory(texts) if documents > 1 else None) as pipeline:
        for _ in range(3):
            next(pipeline)
            state = pipeline.get_state()
            held = from_text(state["lanes"]["0"]["buffer"], vocab_size=263, after=Bookmark())
            assert size <= len(held.ids) < 128 * 1025 + size
            assert len(json.dumps(state)) < len(held.ids) * 4 / 3 + 4096
        assert pipeline.stats()["documents"] == len(held)
        assert len(json.dumps(state)) < (1_400_000 if documents == 1 else 210_000)


def test_documents_encoded_together_with_a_full_block_wait_in_the_state() -> None:
    """The bound on tokens falls within what is encoded at once; none of that is encoded again."""
    settings = {"packing_mode": "bin", "packing_buffer_docs": 40, "shuffle": False}
    small = {**settings, "train_seq_len": 4, "train_batch_size": 4}  # full at 640 tokens
    first = Counted(**small)
    batches = take(first.batches, 10)
    state = first.batches.get_state()
    assert first.tokenizer.encoded == TEXTS  # all in one group, of which a block is a part
    told = stats_of(state, seq_len=4)
    held = from_text(state["lanes"]["0"]["buffer"], vocab_size=263, after=Bookmark())
    assert len(held) == len(TEXTS) > told["documents"]
    rest = Counted(state, **small)
    batches += rest.batches
    assert rest.read == rest.tokenizer.encoded == []
    assert equal(batches, list(Counted(**small).batches))
    assert stats_of(rest.batches.get_state(), seq_len=4)["documents"] == len(TEXTS)


def test_a_buffer_that_cannot_be_compressed_is_under_a_megabyte_too() -> None:
    """128 documents of 2,000 tokens, drawn at random from 50,000."""
    ids = np.random.default_rng(0).integers(50_000, size=128 * 2000, dtype=np.uint32)
    nothing = np.zeros(128, np.int64)
    documents = DocumentBatch(ids=ids, offsets=np.arange(129) * 2000)
    held = EncodedDocuments(
        documents=documents, truncated=nothing, skipped=nothing, after=Bookmark()
    )
    assert len(held.text) < 2**20
    assert np.array_equal(from_text(held.text, vocab_size=50_000, after=Bookmark()).ids, ids)
