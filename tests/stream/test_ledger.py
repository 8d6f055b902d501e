"""The account adds up, for every input, at every step."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import scratch
from tests.stream.making import batches_of, config_of, documents_in, texts_of, write_texts

from tokenreel.errors import InputError
from tokenreel.stream.stream_state import stats_of
from tokenreel.text.sources import InMemory


@pytest.mark.parametrize("mode", ["sequential", "bin"])
@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(3, 60),
    seed=st.integers(0, 99),
    seq_len=st.integers(1, 70),
    end=st.sampled_from(["pad", "drop"]),
    longest=st.none() | st.integers(1, 30),
    eos=st.booleans(),
    train_on_eos=st.booleans(),
    per_bin=st.none() | st.integers(1, 3),
    lanes=st.sampled_from([1, 2]),
)
def test_every_token_and_every_slot_is_accounted_for(
    mode: str, count: int, seed: int, seq_len: int, end: str, longest: int | None,
    eos: bool, train_on_eos: bool, per_bin: int | None, lanes: int,
) -> None:  # fmt: skip
    texts = texts_of(count, seed=seed)
    with scratch() as folder:
        config = config_of(
            write_texts(folder / "a.jsonl", texts),
            packing_mode=mode,
            packing_max_docs_per_bin=per_bin,
            repeat=False,
            end=end,
            num_lanes=lanes,
            train_on_eos=train_on_eos,
            tokenizer_max_doc_tokens=longest,
            tokenizer_add_eos=eos,
            train_seq_len=seq_len,
        )
        stream = batches_of(config)
        shown, trained, told = 0, 0, {}
        try:
            for batch in stream:
                shown += int((batch.segment_ids > 0).sum())
                trained += int((batch.labels != -100).sum())
                told = stats_of(stream.get_state(), seq_len=seq_len)
                _adds_up(told)
                assert told["trained"] == trained
                rows = batch.segment_ids.reshape(-1, seq_len)
                if per_bin and mode == "bin":
                    assert rows.max() <= per_bin
                filled = (rows > 0).any(axis=1)
                assert (batch.labels.reshape(-1, seq_len)[filled] != -100).any(axis=1).all()
        except InputError as error:
            assert "ends before its first batch" in str(error) or "no document" in str(error)
            return
        told = stats_of(stream.get_state(), seq_len=seq_len)
        _adds_up(told)
        if end == "pad" or lanes == 1:
            lengths = [len(text.encode()) + eos for text in texts]
            cut = [min(length, longest or length) for length in lengths]
            assert told["documents"] == count
            assert told["tokens"] == sum(lengths)
            assert told["truncated"] == sum(lengths) - sum(cut)
            assert told["pending"] == 0
            short = sum(length < 2 for length in cut)
            assert told["short_documents"] == (short if mode == "bin" else 0)


def _adds_up(told: dict[str, float]) -> None:
    read = told["placed"] + told["truncated"] + told["dropped"] + told["pending"]
    assert read == told["tokens"] and told["pending"] >= 0
    assert told["placed"] + told["overlap"] + told["padding"] == told["slots"]
    assert told["trained"] + told["masked"] == told["placed"] + told["overlap"]


@given(
    lengths=st.lists(st.integers(2, 24), min_size=1, max_size=150),
    times=st.sampled_from([1, 4, 30]),
    buffer=st.integers(1, 12) | st.just(1000),
    per_bin=st.none() | st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_bin_packing_is_a_permutation_block_by_block(
    lengths: list[int], times: int, buffer: int, per_bin: int | None
) -> None:
    """Each document comes out once, in its own block: none starves, however it fits.

    A block is so many documents, and so many again until they fill 32 rows; the document that
    fills 128 rows is the last in any case.
    """
    texts = [chr(97 + number % 26) * length for number, length in enumerate(lengths * times)]
    with scratch() as folder:
        config = config_of(
            write_texts(folder / "a.jsonl", texts),
            packing_mode="bin",
            packing_buffer_docs=buffer,
            packing_max_docs_per_bin=per_bin,
            shuffle=False,
            repeat=False,
            train_seq_len=24,
        )
        segments = documents_in(batches_of(config))
    assert sorted(segments) == sorted(texts)
    blocks: list[list[str]] = [[]]
    for text in texts:
        filled = sum(len(text) + 1 for text in blocks[-1]) / 25  # rows of T + 1 tokens
        if (len(blocks[-1]) % buffer == 0 and filled >= 32) or filled >= 128:
            blocks.append([])
        blocks[-1].append(text)
    ends = np.cumsum([0, *map(len, blocks)])
    for block, (start, stop) in zip(blocks, pairwise(ends), strict=True):
        assert sorted(segments[start:stop]) == sorted(block)


def test_a_changed_pad_id_changes_no_label() -> None:
    with scratch() as folder:
        path = write_texts(folder / "a.jsonl", texts_of(30))
        streams = [
            list(
                batches_of(
                    config_of(
                        path,
                        packing_mode="bin",
                        repeat=False,
                        model_pad_token_id=pad,
                        tokenizer_auto_set_special_tokens=False,
                    )
                )
            )
            for pad in (0, 65, 256)
        ]
        for one, *others in zip(*streams, strict=True):
            for other in others:
                assert np.array_equal(one.labels, other.labels)
                assert np.array_equal(one.attention_mask, other.attention_mask)


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_what_the_end_leaves_over_is_counted_once_wherever_it_was_resumed(mode: str) -> None:
    """A row without a target, and documents without a token, come after all that is shown."""
    config = config_of(
        Path("none"),
        packing_mode=mode,
        packing_max_docs_per_bin=1,
        repeat=False,
        shuffle=False,
        num_lanes=2,
        train_on_eos=False,
        train_seq_len=4,
    )
    source = InMemory(["abc", "abc", "abc", "abc", "abc", "x", "", ""])
    config["data"]["tokenizer"]["add_eos"] = mode == "bin"
    whole = batches_of(config, source=source)
    states = [whole.get_state()]
    states += [whole.get_state() for _ in whole]
    told = stats_of(whole.get_state(), seq_len=4)
    assert told["documents"] == 8 and told["pending"] == 0
    for state in states:
        resumed = batches_of(config, source=source)
        resumed.set_state(state)
        list(resumed)
        assert stats_of(resumed.get_state(), seq_len=4) == told


@pytest.mark.parametrize("end", ["pad", "drop"])
@pytest.mark.parametrize("tail", [0, 1, 2, 4])
def test_the_tail_of_a_stream_of_windows_is_counted_to_the_token(end: str, tail: int) -> None:
    config = config_of(
        Path("none"),
        repeat=False,
        shuffle=False,
        end=end,
        tokenizer_add_eos=False,
        train_seq_len=5,
        train_batch_size=1,
        train_grad_accum=1,
    )
    # Two windows are 11 tokens: the first of a window is the last of the one before.
    stream = batches_of(config, source=InMemory(["abcdef", "ghijk" + "x" * tail, ""]))
    rows = np.concatenate([batch.input_ids.reshape(-1, 5) for batch in stream])
    told = stats_of(stream.get_state(), seq_len=5)
    padded = end == "pad" and tail > 0
    assert len(rows) == told["rows"] == 2 + padded
    assert told["documents"] == 3 and told["tokens"] == 11 + tail
    assert told["placed"] == 11 + (tail if padded else 0)
    assert told["dropped"] == (0 if padded else tail)
    assert told["overlap"] == 1 + padded
    assert told["padding"] == (5 - tail if padded else 0)


@pytest.mark.parametrize("mode", ["sequential", "bin"])
@pytest.mark.parametrize("longest", [6, 7, 8])
def test_a_document_that_is_one_token_too_long_is_a_truncated_document(
    mode: str, longest: int
) -> None:
    config = config_of(
        Path("none"),
        packing_mode=mode,
        repeat=False,
        tokenizer_max_doc_tokens=longest,
        tokenizer_add_eos=False,
    )
    stream = batches_of(config, source=InMemory(["abcdefg", "hijk", "lmnopq"]))
    list(stream)
    told = stats_of(stream.get_state(), seq_len=24)
    assert told["truncated_documents"] == told["truncated"] == int(longest == 6)


def test_a_lane_of_a_single_token_drops_it_and_counts_it() -> None:
    """No window was cut from it before the end: its first token is nobody's last."""
    config = config_of(
        Path("none"),
        repeat=False,
        shuffle=False,
        num_lanes=2,
        tokenizer_add_eos=False,
        train_seq_len=5,
    )
    stream = batches_of(config, source=InMemory(["abcdef", "x", "", ""]))
    list(stream)
    told = stats_of(stream.get_state(), seq_len=5)
    assert told["documents"] == 4 and told["tokens"] == 7
    assert told["placed"] == 6 and told["dropped"] == 1 and told["pending"] == 0
