"""Heads of documents: the rows of contracts 000 and 002."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import scratch
from tests.rows.corpora import write_store

from tokenreel import native
from tokenreel.dropin import document_heads
from tokenreel.dropin.document_heads import DocumentHeads
from tokenreel.dropin.id_rows import IdRows
from tokenreel.errors import ConfigError, VocabularyError


@pytest.fixture(params=["native", "numpy"])
def kernel(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "extension", lambda: None)


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    seq_len=st.integers(1, 20),
    min_tokens=st.integers(1, 4),
)
def test_heads_are_the_first_tokens_of_every_document_that_is_long_enough(
    lengths, seq_len, min_tokens
):
    with scratch() as place:
        split = write_store(place / "s", lengths)["train"] if any(lengths) else None
        kept = [number for number, length in enumerate(lengths) if length >= min_tokens]
        if split is None:
            return
        if not kept:
            with pytest.raises(ConfigError, match="no document is long enough"):
                DocumentHeads(split, seq_len, min_tokens=min_tokens)
            return
        heads = DocumentHeads(split, seq_len, min_tokens=min_tokens)
        assert heads.documents.tolist() == kept and heads.num_rows == len(kept)
        rows = np.random.default_rng(0).integers(0, len(kept), 5)
        pieces = heads.pieces(rows)
        inputs, labels = IdRows(split, seq_len).gather(pieces)
        for place_, row in enumerate(rows.tolist()):
            tokens = split.document(kept[row]).tokens[: seq_len + 1].tolist()
            missing = seq_len + 1 - len(tokens)
            assert inputs[place_].tolist() == (tokens + [0] * missing)[:seq_len]
            assert labels[place_].tolist() == (tokens + [-100] * missing)[1:]


def test_batches_share_no_memory_that_one_of_them_may_change(tmp_path):
    split = write_store(tmp_path / "s", [3, 6, 1, 5], shard_bytes=1024)["train"]
    heads = DocumentHeads(split=split, seq_len=4)
    with pytest.raises(ValueError, match="read-only"):
        heads.pieces(np.arange(2)).row_offsets[0] = 1
    assert heads.pieces(np.arange(2)).row_offsets.tolist() == [0, 1, 2]


def test_min_tokens_below_one_is_refused(tmp_path):
    split = write_store(tmp_path / "s", [3])["train"]
    with pytest.raises(ConfigError, match="bad min_tokens"):
        DocumentHeads(split, 4, min_tokens=0)


def test_padding_may_be_a_token_like_any_other(tmp_path, kernel):
    split = write_store(tmp_path / "s", [3, 6, 1, 5], shard_bytes=1024)["train"]
    heads = DocumentHeads(split, 4, min_tokens=1)
    inputs, labels = IdRows(split, 4).gather(heads.pieces(np.arange(4)), pad_id=7)
    for row in range(4):
        tokens = [*split.document(row).tokens.tolist(), 7, 7, 7, 7]
        assert inputs[row].tolist() == tokens[:4] and labels[row].tolist() == tokens[1:5]


def test_an_id_to_pad_with_that_does_not_fit_the_dtype_is_refused_and_never_wraps(tmp_path):
    split = write_store(tmp_path / "s", [3], vocab_size=100)["train"]
    heads = DocumentHeads(split, 4)
    with pytest.raises(VocabularyError, match=r"does not fit the token dtype \(expected 0 to 65,5"):
        IdRows(split, 4).gather(heads.pieces(np.arange(1)), pad_id=65_536)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_heads_are_alike_however_many_documents_are_looked_at_at_once(
    tmp_path, at_once, monkeypatch
):
    split = write_store(tmp_path / "s", [3, 0, 14, 1, 2, 30, 2])["train"]
    monkeypatch.setattr(document_heads, "DOCUMENTS_AT_ONCE", at_once)
    rows = DocumentHeads(split, 4, min_tokens=2)
    assert rows.documents.tolist() == [0, 2, 4, 5, 6]
    inputs, _ = IdRows(split, 4).gather(rows.pieces(np.arange(5)))
    shown = [split.document(number).tokens[:4].tolist() for number in (0, 2, 4, 5, 6)]
    assert inputs.tolist() == [[*tokens, 0, 0][:4] for tokens in shown]
