"""What each id says: together the texts are what the tokenizer decodes, and no character is cut."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.text.tokenizers.id_texts import MOST_IDS, IdTexts
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

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


class Endless:
    """A tokenizer whose ids 0 to 9 are long and end in half a character; 10 is half a character."""

    vocab_size, fingerprint = 12, "endless"
    control_ids: ClassVar[dict[str, int]] = {"half \ufffd": 11}

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        raise NotImplementedError

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        numbers = np.asarray(ids).tolist()
        return "".join("\ufffd" if n == 10 else f"{n}" * 100_000 + "\ufffd" for n in numbers)


def test_long_ids_are_kept_once_however_often_they_come() -> None:
    texts = IdTexts(Endless())
    tracemalloc.start()
    found = texts.of([5, 10, 6, 10, 10, 6] * 500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000
    assert found[0] == "5" * 100_000 + "\ufffd"
    assert found[1:3] == ["\ufffd", "6" * 100_000 + "\ufffd"]
    assert found[3:5] == [None, "\ufffd\ufffd"]


def test_the_name_of_a_control_id_is_joined_with_nothing() -> None:
    assert IdTexts(Endless()).of([11, 10, 11]) == ["half \ufffd", "\ufffd", "half \ufffd"]
