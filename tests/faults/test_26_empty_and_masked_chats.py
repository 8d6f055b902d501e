"""Fault 26, chats: no messages is an error, empty messages are rendered.

Chats in which nothing is trained, or longer than a row, are counted where rows are made
(test_26_empty_and_masked_rows.py, tests/rows).
"""

from __future__ import annotations

import pytest

from tokenreel.errors import InputError
from tokenreel.text.chats import NGPT, Chat, Message, read_chat, render
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import NGPT_SPECIALS, byte_tokenizer

TOKENIZER = byte_tokenizer(tuple(NGPT_SPECIALS.values()))
END = TOKENIZER.control_ids[NGPT_SPECIALS["eot"]]


def test_a_chat_without_messages_is_an_error_with_its_place() -> None:
    place = Provenance(file="chats.jsonl", row=41)
    with pytest.raises(InputError, match=r"^chats\.jsonl:42: a chat without messages"):
        read_chat({"messages": []}, place)
    with pytest.raises(InputError, match=r"^chats\.jsonl:42: a chat without messages"):
        render([Chat(messages=(), provenance=place)], NGPT, tokenizer=TOKENIZER)


def test_empty_contents_render_and_train_the_end_of_turn_alone() -> None:
    messages = (Message(role="user", content=""), Message(role="assistant", content=""))
    rendered = render([Chat(messages=messages)], NGPT, tokenizer=TOKENIZER)
    assert rendered.ids[rendered.token_weights() > 0].tolist() == [END]
