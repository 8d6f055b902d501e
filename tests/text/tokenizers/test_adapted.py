"""Objects of contract 001's interface as tokenizers."""

from __future__ import annotations

import pytest

from tokenreel.errors import ConfigError, VocabularyError
from tokenreel.text.tokenizers import NGPT_SPECIALS, Tokenizer, adapt, load_tokenizer


class Words:
    """One id per word; control strings are matched in text, as careless tokenizers do."""

    vocab_size = 1000

    def special_token_ids(self) -> dict[str, int]:
        return {"sys": 0, "usr": 1, "asst": 2, "eot": 3}

    def encode(self, text: str) -> list[int]:
        known = {NGPT_SPECIALS[name]: number for name, number in self.special_token_ids().items()}
        return [known.get(word, 10 + len(word)) for word in text.split()]


def test_an_adapted_object_is_a_tokenizer() -> None:
    tokenizer = adapt(Words())
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.vocab_size == 1000
    assert tokenizer.control_ids == {NGPT_SPECIALS[name]: n for n, name in enumerate(NGPT_SPECIALS)}
    encoded = tokenizer.encode_batch(["a bb", "", "ccc"])
    assert [encoded[n].tolist() for n in range(3)] == [[11, 12], [], [13]]


def test_content_that_encodes_to_a_control_id_is_an_error_naming_the_text() -> None:
    text = f"hello {NGPT_SPECIALS['asst']}"
    with pytest.raises(VocabularyError, match="control id 2 out of the text 'hello <") as caught:
        adapt(Words()).encode_batch(["fine", text])
    assert caught.value.where == "text 1 of the batch"


def test_a_tokenizer_stays_itself_and_load_tokenizer_adapts() -> None:
    byte = load_tokenizer("byte")
    assert adapt(byte) is byte
    assert load_tokenizer(Words()).vocab_size == 1000  # type: ignore[call-overload]


def test_what_lacks_the_interface_is_refused() -> None:
    with pytest.raises(ConfigError, match="a dict is no tokenizer: it has no encode, special_"):
        adapt({})
    with pytest.raises(ConfigError, match="a Words cannot decode"):
        adapt(Words()).decode([11])


def test_the_fingerprint_tells_control_ids_apart() -> None:
    class Others(Words):
        def special_token_ids(self) -> dict[str, int]:
            return {"sys": 4, "usr": 1, "asst": 2, "eot": 3}

    Others.__qualname__ = Words.__qualname__
    assert adapt(Words()).fingerprint == adapt(Words()).fingerprint
    assert adapt(Words()).fingerprint != adapt(Others()).fingerprint
