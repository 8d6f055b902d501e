"""What each id says: together the texts are what the tokenizer decodes, and no character is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.text.tokenizers.id_texts import MOST_IDS, IdTexts
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

KINDS = ["bpe", "bpe_split", "bpe_words", "bpe_sentencepiece_style", "unigram", "wordpiece"]
KINDS += ["sp_trained", "sp_unigram", "sp_user_defined", "tiktoken", "byte"]
Open = Callable[[str], ReferencedTokenizer]
TEXTS = st.lists(
    st.sampled_from(
        [
            "Grüße",
            " ",
            "日本語",
            "🙂",
            "\n",
            "def",
            " 한국어",
            "café.",
            "__init__",
            "👩‍👩‍👧",
            "\u0301",
        ]
    ),
    max_size=20,
).map("".join)
SHARED = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", KINDS)
@SHARED
@given(text=TEXTS)
def test_texts_of_ids_spell_the_decoded_text(kind: str, open_kind: Open, text: str) -> None:
    tokenizer = open_kind(kind)
    anchor = tokenizer.encode("a")[-1:]  # a text that does not begin here has its first blank
    ids = tokenizer.encode_batch([text]).ids.tolist()
    spelled = "".join(found or "" for found in IdTexts(tokenizer).of(ids))
    assert tokenizer.decode(anchor) + spelled == tokenizer.decode([*anchor, *ids])


@pytest.mark.parametrize("kind", ("bpe", "tiktoken", "byte", "sp_trained"))
@SHARED
@given(text=TEXTS, start=st.integers(0, 40))
def test_from_the_middle_on_texts_are_as_from_the_beginning(
    kind: str, open_kind: Open, text: str, start: int
) -> None:
    tokenizer = open_kind(kind)
    texts, ids = IdTexts(tokenizer), tokenizer.encode_batch([text]).ids.tolist()
    whole, part = texts.of(ids), texts.of(ids[start:])
    assert part[MOST_IDS:] == whole[start + MOST_IDS :]


def test_a_part_of_a_character_has_no_text_and_its_last_id_has_it_all(open_kind: Open) -> None:
    texts = IdTexts(open_kind("byte"))
    assert texts.of(list("é🙂".encode())) == [None, "é", None, None, None, "🙂"]


def test_no_character_reaches_over_a_beginning_or_a_control_id(open_kind: Open) -> None:
    texts = IdTexts(open_kind("byte"))
    first, second = "é".encode()
    assert texts.of([first, second], begins={1}) == ["\ufffd", "\ufffd"]
    control = next(iter(texts.control_names))
    found = texts.of([first, control, second])
    assert found == ["\ufffd", texts.control_names[control], "\ufffd"]


def test_ids_that_the_tokenizer_lacks_are_numbers(open_kind: Open) -> None:
    assert IdTexts(open_kind("bpe")).of([10**6]) == ["⟨1000000⟩"]
