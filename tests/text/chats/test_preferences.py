"""Records of preferences become groups; what is none is refused by file, line and field."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import InputError
from tokenreel.text.chats import BUILT_IN, Template, render
from tokenreel.text.chats.group_render import render_groups
from tokenreel.text.chats.preferences import Group, read_group
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.text.turns import NO_LABEL, PREFERRED, REJECTED, answer_begins

USER = {"role": "user", "content": "What color is the sky?"}
BLUE = {"role": "assistant", "content": "It is blue."}
GREEN = {"role": "assistant", "content": "It is green."}
PLACE = Provenance(file="pairs.jsonl", row=6)


def said(group: Group) -> list[list[tuple[str, str]]]:
    return [[(m.role, m.content) for m in chat.messages] for chat in group.answers]


ASKED = ("user", USER["content"])
SKY = [[ASKED, ("assistant", "It is blue.")], [ASKED, ("assistant", "It is green.")]]
SAME_PAIR: dict[str, dict[str, Any]] = {
    "texts": {"prompt": USER["content"], "chosen": "It is blue.", "rejected": "It is green."},
    "messages": {"prompt": [USER], "chosen": [BLUE], "rejected": [GREEN]},
    "implicit": {"chosen": [USER, BLUE], "rejected": [USER, GREEN]},
    "implicit with a prompt beside it": {
        "prompt": "What color is the sky?",
        "chosen": [USER, BLUE],
        "rejected": [USER, GREEN],
    },
    "a text and messages": {"prompt": USER["content"], "chosen": [BLUE], "rejected": [GREEN]},
    "messages and texts": {"prompt": [USER], "chosen": "It is blue.", "rejected": "It is green."},
    "ShareGPT": {
        "chosen": [
            {"from": "human", "value": USER["content"]},
            {"from": "gpt", "value": "It is blue."},
        ],
        "rejected": [
            {"from": "human", "value": USER["content"]},
            {"from": "gpt", "value": "It is green."},
        ],
    },
}


@pytest.mark.parametrize("record", SAME_PAIR.values(), ids=list(SAME_PAIR))
def test_a_pair_is_the_same_group_in_every_shape(record: dict[str, Any]) -> None:
    group = read_group(record, PLACE)
    assert said(group) == SKY
    assert group.labels == (PREFERRED, REJECTED)
    assert group.provenance == PLACE


def test_prompts_weigh_nothing_whatever_they_say_and_answers_are_left_to_the_policy() -> None:
    prompt = [{**USER, "train": True}, {**BLUE, "weight": 2}, USER]
    group = read_group(
        {"prompt": prompt, "chosen": [BLUE], "rejected": [{**GREEN, "train": False}]}
    )
    assert [[m.weight for m in chat.messages] for chat in group.answers] == [
        [0, 0, 0, None],
        [0, 0, 0, 0],
    ]


def test_the_system_text_history_and_tools_go_before_every_answer() -> None:
    record = {
        **SAME_PAIR["texts"],
        "system": "Be brief.",
        "history": [["Hi", "Hello"]],
        "tools": [{"name": "look"}],
    }
    group = read_group(record)
    for chat in group.answers:
        assert [m.content for m in chat.messages[:3]] == ["Be brief.", "Hi", "Hello"]
        assert chat.tools == ('{"name":"look"}',)


@pytest.mark.parametrize(("label", "expected"), [(True, PREFERRED), (False, REJECTED)])
def test_a_labelled_completion_is_a_group_of_one(label: bool, expected: int) -> None:
    group = read_group({"prompt": [USER], "completion": [BLUE], "label": label})
    assert said(group) == SKY[:1] and group.labels == (expected,)


@pytest.mark.parametrize(
    ("how", "order"),
    [
        ({}, "abc"),
        ({"scores": [1, 3, 2.5]}, "bca"),
        ({"ranks": [2, 3, 1]}, "cab"),
        ({"scores": [1, 1, 5]}, "cab"),
    ],
)
@pytest.mark.parametrize("key", ["answers", "responses"])
def test_ranked_answers_stand_best_first(key: str, how: dict[str, Any], order: str) -> None:
    group = read_group({"prompt": "?", key: ["a", "b", "c"], **how})
    assert "".join(chat.messages[-1].content for chat in group.answers) == order
    assert group.labels == (NO_LABEL,) * 3


@given(st.text(min_size=1), st.text(min_size=1), st.text())
def test_an_implicit_prompt_of_texts_is_what_both_begin_with(
    first: str, second: str, shared: str
) -> None:
    chosen, rejected = f"p{shared}{first}", f"p{shared}{second}"
    try:
        group = read_group({"chosen": chosen, "rejected": rejected})
    except InputError as error:
        assert "lone surrogate" in str(error) or "do not begin alike" in str(error)
        return
    texts = [[m.content for m in chat.messages] for chat in group.answers]
    assert [prompt + answer for prompt, answer in texts] == [chosen, rejected]
    assert texts[0][0] == texts[1][0]
    # No more than the answers have in common, and no fewer than its whole words.
    shorter = min(len(chosen), len(rejected)) - 1
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))
    common = "".join(letter for letter, _ in alike)[:shorter]
    assert common.startswith(texts[0][0])
    rest = common[len(texts[0][0]) :]
    assert not any(letter.isspace() for letter in rest.removeprefix(" "))


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [
        ("The sky is blue", "The sky is green", "The sky is"),
        ("The sky is blue", "The sky is black", "The sky is"),
        ("Sky?\nblue", "Sky?\nblack", "Sky?\n"),
        ("bluer", "bluest", "blue"),
    ],
)
def test_an_implicit_prompt_of_texts_ends_with_a_word(
    chosen: str, rejected: str, prompt: str
) -> None:
    group = read_group({"chosen": chosen, "rejected": rejected})
    assert [m.content for m in group.answers[0].messages] == [prompt, chosen[len(prompt) :]]


def test_conversations_that_are_the_same_leave_the_last_message_as_the_answer() -> None:
    group = read_group({"chosen": [USER, BLUE], "rejected": [USER, BLUE]})
    assert said(group) == [SKY[0], SKY[0]]
    assert group.has_same_answers
    assert not read_group(SAME_PAIR["texts"]).has_same_answers


BAD: dict[str, tuple[Any, str]] = {
    "no object": (["a"], "not a group of answers"),
    "a chat": ({"messages": [USER, BLUE]}, "no known shape of preferences"),
    "no rejected": ({"prompt": "a", "chosen": "b"}, "field 'rejected': no answer"),
    "empty": ({"prompt": "a", "chosen": "", "rejected": "b"}, "field 'chosen': an empty answer"),
    "two kinds": ({"prompt": "a", "chosen": "b", "rejected": [GREEN]}, "of different kinds"),
    "nothing in common": ({"chosen": "a", "rejected": "b"}, "do not begin alike"),
    "no assistant": (
        {"prompt": [USER], "chosen": [USER, USER], "rejected": [USER]},
        "field 'chosen': an answer without a message of the assistant",
    ),
    "label of text": ({"prompt": "a", "completion": "b", "label": "yes"}, "field 'label'"),
    "no label": ({"prompt": "a", "completion": "b"}, "field 'label': not a label"),
    "no prompt": ({"completion": "b", "label": True}, "field 'prompt': no prompt"),
    "one answer": ({"prompt": "a", "answers": ["b"]}, "field 'answers': not a list of answers"),
    "empty answer": ({"prompt": "a", "answers": ["b", ""]}, "'answers[1]': an empty answer"),
    "scores": ({"prompt": "a", "answers": ["b", "c"], "scores": [1]}, "field 'scores'"),
    "both": (
        {"prompt": "a", "answers": ["b", "c"], "scores": [1, 2], "ranks": [1, 2]},
        "scores and ranks",
    ),
    "bad role": (
        {"prompt": "a", "chosen": [{"role": "x", "content": ""}], "rejected": [GREEN]},
        "chosen[0].role",
    ),
}


@pytest.mark.parametrize(("record", "message"), BAD.values(), ids=list(BAD))
def test_what_is_no_group_is_refused_by_file_line_and_field(record: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_group(record, PLACE)
    assert message in str(caught.value) and "pairs.jsonl:7" in str(caught.value)


GROUPS = [
    read_group(SAME_PAIR["texts"]),
    read_group({"prompt": [USER], "answers": ["a", "bb", "ccc"]}),
    read_group({"prompt": "?", "completion": "!", "label": False}),
]


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=lambda t: t.name)
def test_each_answer_has_the_ids_and_weights_it_has_as_a_chat_alone(
    template: Template, byte: Tokenizer
) -> None:
    rendered = render_groups(GROUPS, template, tokenizer=byte)
    weights = rendered.token_weights()
    for number, group in enumerate(GROUPS):
        turns, start = rendered.chat_turns(number), int(rendered.offsets[number])
        begins = answer_begins(turns, np.zeros(len(turns), np.int64))
        borders = [*turns["start"][begins].astype(int), len(rendered.chat_ids(number))]
        assert len(begins) == len(group.answers)
        for chat, label, begin, end in zip(
            group.answers, group.labels, borders[:-1], borders[1:], strict=True
        ):
            alone = render([chat], template, tokenizer=byte)
            here = slice(start + begin, start + end)
            assert (rendered.ids[here] == alone.ids).all()
            assert (weights[here] == alone.token_weights()).all()
            assert (turns["label"][turns["start"] == begin] == label).all()
