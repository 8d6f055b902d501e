"""Texts given as UTF-8 get the ids of the same texts given as strings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.tokenizers.test_engine import WrongAt, bytes_with
from tests.text.tokenizers.test_no_text_is_control import KINDS

from tokenreel.text.tokenizers.bpe_engines import Gigatoken
from tokenreel.text.tokenizers.hostile import hostile_sample
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

Open = Callable[[str], ReferencedTokenizer]


def assert_equal(actual: Encoded, expected: Encoded) -> None:
    assert np.array_equal(actual.ids, expected.ids)
    assert np.array_equal(actual.offsets, expected.offsets)
    assert (actual.ids.dtype, actual.offsets.dtype) == (np.uint32, np.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_ids_of_its_reference(kind: str, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    sample = [*hostile_sample(tokenizer.control_ids), Path(__file__).read_text()]
    expected = tokenizer.encode_by_reference(sample)
    assert_equal(tokenizer.encode_utf8([text.encode() for text in sample]), expected)
    assert_equal(tokenizer.encode_batch(sample), expected)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_any_text_gives_the_same_ids_in_both_forms(texts: list[str], open_kind: Open) -> None:
    tokenizer = open_kind("bpe")
    utf8 = [text.encode() for text in texts]
    assert_equal(tokenizer.encode_utf8(utf8), tokenizer.encode_batch(texts))


def test_gigatoken_gives_the_same_ids_one_by_one_and_in_a_batch(open_kind: Open) -> None:
    engine = open_kind("bpe")._engine
    assert isinstance(engine, Gigatoken)
    few = hostile_sample()
    many = few * 40  # more than are worth a call each
    alone, batched = engine.encode(few), engine.encode(many)
    assert np.array_equal(batched.ids, np.tile(alone.ids, 40))
    assert np.array_equal(batched.offsets[: len(few) + 1], alone.offsets)
    assert_equal(engine.encode_utf8([text.encode() for text in many]), batched)


def test_nothing_at_all_has_no_ids(open_kind: Open) -> None:
    for kind in ("byte", "bpe", "unigram"):
        assert_equal(
            open_kind(kind).encode_utf8([]),
            Encoded(ids=np.empty(0, np.uint32), offsets=np.zeros(1, np.int64)),
        )


def test_an_engine_that_gives_up_leaves_the_batch_to_the_reference() -> None:
    class GivesUp(WrongAt):
        def encode_utf8(self, texts: list[bytes]) -> Encoded:
            raise RuntimeError("panic")

    tokenizer = bytes_with(lambda: GivesUp(lambda text: False))
    assert tokenizer.engine == "wrong 1.0"
    assert tokenizer.encode_utf8([b"hi", "é".encode()]).ids.tolist() == [104, 105, 195, 169]
