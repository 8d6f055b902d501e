"""Properties 4 and 5: text yields no control id, and comes back as it was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

KINDS = (
    "bpe",
    "bpe_split",
    "bpe_words",
    "bpe_whole_words",
    "bpe_sentencepiece_style",
    "unigram",
    "wordlevel",
    "wordpiece",
    "sp_trained",
    "sp_user_defined",
    "sp_unigram",
    "sp_word",
    "tiktoken",
    "byte",
)
# These write every text and read back what was written.
EXACT = ("bpe", "bpe_split", "bpe_words", "sp_trained", "sp_user_defined", "tiktoken", "byte")
WORDS = ("covid19x", "    ", "<unk>", "<0x41>", "[UNK]", "e\u0301", "👩🏽\u200d🚀", "don't", "\r\n")

Open = Callable[[str], ReferencedTokenizer]
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def texts_spelling(tokenizer: ReferencedTokenizer) -> st.SearchStrategy[list[str]]:
    strings = st.sampled_from([*tokenizer.control_ids, *WORDS])
    parts = st.one_of(strings, st.text(max_size=8), st.sampled_from(["", " ", "a", "\n"]))
    return st.lists(st.lists(parts, max_size=6).map("".join), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_control_tokens_to_forge(kind: str, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    assert len(tokenizer.control_ids) >= 2
    assert all(number < tokenizer.vocab_size for number in tokenizer.control_ids.values())


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(data=st.data())
def test_no_text_yields_a_control_id(kind: str, data: st.DataObject, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    texts = data.draw(texts_spelling(tokenizer))
    controls = list(tokenizer.control_ids.values())
    for encoded in (tokenizer.encode_batch(texts), tokenizer.encode_by_reference(texts)):
        assert not np.isin(encoded.ids, controls).any()
        assert len(encoded) == len(texts)


@pytest.mark.parametrize("kind", EXACT)
@quick
@given(data=st.data())
def test_text_comes_back_from_its_ids(kind: str, data: st.DataObject, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    # SentencePiece writes blanks as U+2581, so that one cannot come back as itself.
    texts = [text.replace("\u2581", "") for text in data.draw(texts_spelling(tokenizer))]
    encoded = tokenizer.encode_batch(texts)
    assert [tokenizer.decode(encoded[number]) for number in range(len(texts))] == texts


@pytest.mark.parametrize("kind", EXACT)
def test_a_span_decodes_to_its_content_and_its_structure(kind: str, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    end, number = next(iter(tokenizer.control_ids.items()))
    for content in ("", " ", f"[{end}]", "e\u0301\u0301", "👩🏽\u200d🚀", "\n\n x"):
        ids = [number, *tokenizer.encode_batch([content]).ids.tolist(), number, number]
        assert tokenizer.decode(ids) == end + content + end + end
        assert int(np.isin(ids, list(tokenizer.control_ids.values())).sum()) == 3


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(data=st.data())
def test_engine_equals_reference_and_ids_ignore_the_batch(
    kind: str, data: st.DataObject, open_kind: Open
) -> None:
    tokenizer = open_kind(kind)
    texts = data.draw(texts_spelling(tokenizer))
    together, reference = tokenizer.encode_batch(texts), tokenizer.encode_by_reference(texts)
    assert np.array_equal(together.ids, reference.ids)
    assert np.array_equal(together.offsets, reference.offsets)
    for number, text in enumerate(texts):
        assert tokenizer.encode_batch([text]).ids.tolist() == together[number].tolist()
