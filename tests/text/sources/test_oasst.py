"""Message trees to conversations: the stated rule, case by case."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tokenreel.errors import InputError
from tokenreel.text.sources import InMemory, ReadOptions, Record
from tokenreel.text.sources.oasst import MessageTrees, conversations

ROWS = ReadOptions(text_key=None, id_key="message_id")


def message(id: str, parent: str | None, role: str, **others: Any) -> dict[str, Any]:
    return {"message_id": id, "parent_id": parent, "role": role, "text": f"text of {id}", **others}


def paths(messages: list[dict[str, Any]]) -> list[str]:
    return [
        " ".join(turn["content"].removeprefix("text of ") for turn in turns)
        for _, turns in conversations(messages)
    ]


TREE = [
    message("a", None, "prompter"),
    message("b", "a", "assistant", rank=1),
    message("c", "a", "assistant", rank=0),
    message("d", "c", "prompter", rank=None),
    message("e", "c", "prompter", rank=2),
    message("f", "e", "assistant"),
]


def test_the_lowest_rank_follows_and_no_rank_comes_last() -> None:
    assert paths(TREE) == ["a c e f"]


def test_ties_are_decided_by_message_id_not_by_order() -> None:
    tied = [message("a", None, "prompter")] + [
        message(name, "a", "assistant", rank=0) for name in ("z", "x", "y")
    ]
    for seed in range(5):
        random.Random(seed).shuffle(tied)
        assert paths(tied) == ["a x"]


def test_prompter_is_user() -> None:
    [(root, turns)] = conversations(TREE)
    assert root == "a"
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]


def test_a_conversation_ends_with_the_assistant_and_a_tree_without_one_gives_nothing() -> None:
    assert paths(TREE[:5]) == ["a c"]
    assert paths(TREE[:1]) == []


def test_deleted_messages_take_their_answers_along() -> None:
    assert paths([{**m, "deleted": m["message_id"] == "c"} for m in TREE]) == ["a b"]
    assert paths([{**m, "deleted": m["message_id"] == "a"} for m in TREE]) == []


def test_trees_come_in_the_order_of_their_roots_wherever_their_messages_are() -> None:
    second = [message("r", None, "prompter"), message("s", "r", "assistant")]
    assert paths([*reversed(TREE), *second]) == ["a c e f", "r s"]
    assert paths([second[0], *TREE, second[1]]) == ["r s", "a c e f"]


def test_the_order_of_messages_does_not_matter_within_a_tree() -> None:
    mixed = list(TREE)
    for seed in range(10):
        random.Random(seed).shuffle(mixed)
        assert paths(mixed) == ["a c e f"]


def test_the_source_yields_chats_that_name_their_root(
    assert_resumes_everywhere: Callable[..., None],
    read_all: Callable[..., list[Record]],
) -> None:
    second = [message("r", None, "prompter"), message("s", "r", "assistant")]
    source = MessageTrees(InMemory([*TREE, *second], options=ROWS))
    records = read_all(source)
    assert [record.provenance.id for record in records] == ["a", "r"]
    assert records[1].value == {
        "messages": [
            {"role": "user", "content": "text of r"},
            {"role": "assistant", "content": "text of s"},
        ]
    }
    assert_resumes_everywhere(source)


def test_a_row_that_is_no_message_is_bad(read_all: Callable[..., list[Record]]) -> None:
    with pytest.raises(InputError, match=r"\(memory\):1: not a message of a tree .* 'text_of'"):
        read_all(MessageTrees(InMemory([{"text_of": "x"}], options=ROWS)))
