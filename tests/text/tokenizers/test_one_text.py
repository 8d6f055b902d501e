"""`encode` and `decode` of a loaded tokenizer: one text, and ids as people hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tokenreel.errors import InputError, VocabularyError
from tokenreel.text.tokenizers import LoadedTokenizer, adapt
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

Open = Callable[[str], ReferencedTokenizer]
KINDS = ("bpe", "bpe_words", "unigram", "sp_trained", "tiktoken", "byte")


@pytest.mark.parametrize("kind", KINDS)
def test_encode_is_a_list_of_the_ids_of_encode_batch(kind: str, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    assert isinstance(tokenizer, LoadedTokenizer)
    for text in ("", "return self", "</s> grüße [INST]", "日本"):
        ids = tokenizer.encode(text)
        assert type(ids) is list and all(type(number) is int for number in ids)
        assert ids == tokenizer.encode_batch([text]).ids.tolist()


@pytest.mark.parametrize(
    "held",
    [
        list,
        tuple,
        np.array,
        lambda ids: np.array(ids, np.uint16),
        lambda ids: np.array(ids, np.uint64),
        torch.tensor,
        lambda ids: torch.tensor(ids, dtype=torch.int32),
    ],
    ids=["list", "tuple", "int64", "uint16", "uint64", "tensor", "int32 tensor"],
)
def test_decode_takes_ids_as_people_hold_them(held: Callable[[Any], Any], open_kind: Open) -> None:
    tokenizer = open_kind("bpe")
    text = "return self.grüße"
    assert tokenizer.decode(held(tokenizer.encode(text))) == text
    assert tokenizer.decode(held([])) == ""


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            [[1, 2], [3, 4]],
            r"not the ids of one text .*got shape \(2, 2\)\); decode a batch row by",
        ),
        ([[1], [2, 3]], r"not the ids of one text .*got list\)$"),
        (torch.zeros(2, 2, dtype=torch.int64), r"got shape \(2, 2\)"),
        (7, r"got int\)$"),
        ("text", r"got str\)$"),
        ([1.5], r"token ids are integers \(got .*1\.5.*float64"),
        (torch.tensor([1.0]), "token ids are integers"),
        ([True], "token ids are integers"),
        ([2**70], "token ids are integers"),
        (np.array([2**63], np.uint64), "token ids are integers"),
    ],
)
def test_what_is_no_row_of_ids_is_refused(ids: Any, message: str, open_kind: Open) -> None:
    with pytest.raises(InputError, match=message):
        open_kind("bpe").decode(ids)


def test_an_id_outside_the_vocabulary_is_refused_in_a_tensor_too(open_kind: Open) -> None:
    with pytest.raises(VocabularyError, match="token 1 is outside the vocabulary"):
        open_kind("byte").decode(torch.tensor([1, -1]))


@pytest.mark.parametrize("text", [["a", "b"], b"bytes", None])
def test_encode_refuses_what_is_not_one_string(text: Any, open_kind: Open) -> None:
    with pytest.raises(
        InputError, match=r"encode takes one string.*give several texts to encode_b"
    ):
        open_kind("bpe").encode(text)


def test_an_adapted_object_encodes_and_decodes_one_text_too() -> None:
    class Letters:
        vocab_size = 128

        def special_token_ids(self) -> dict[str, int]:
            return {"eot": 0}

        def encode(self, text: str) -> list[int]:
            return list(text.encode())

        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode()

    tokenizer = adapt(Letters())
    assert isinstance(tokenizer, LoadedTokenizer)
    assert tokenizer.encode("ab") == [97, 98]
    assert tokenizer.decode(torch.tensor([97, 98])) == "ab"
    with pytest.raises(VocabularyError, match="control id 0 out of the text"):
        tokenizer.encode("\0")
