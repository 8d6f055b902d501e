"""Records of preferences become groups; what is none is refused by file, line and field."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import train_bpe

from tokenreel.errors import InputError
from tokenreel.text.chats import BUILT_IN, Template, load_template, render
from tokenreel.text.chats.group_render import render_groups
from tokenreel.text.chats.preferences import Group, read_group
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer
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
    "the prompt's messages, and again in both answers": {
        "prompt": [USER],
        "chosen": [USER, BLUE],
        "rejected": [USER, GREEN],
    },
    "nulls, as Parquet has them": {
        "chosen": [{**USER, "tool_calls": None}, {**BLUE, "tool_calls": None}],
        "rejected": [USER, GREEN],
    },
    "nulls in repeated messages": {
        "prompt": [USER],
        "chosen": [{**USER, "name": None}, BLUE],
        "rejected": [USER, {**GREEN, "name": None}],
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


def test_a_prompt_of_messages_that_answers_repeat_is_not_doubled() -> None:
    for more in ({"completion": [USER, BLUE], "label": True}, {"answers": [[USER, BLUE], [BLUE]]}):
        group = read_group({"prompt": [USER], **more})
        assert said(group) == SKY[:1] * len(group.answers)


@pytest.mark.parametrize(
    ("how", "order"),
    [
        ({}, "abc"),
        ({"scores": [1, 3, 2.5]}, "bca"),
        ({"ranks": [2, 3, 1]}, "cab"),
        ({"scores": [1, 1, 5]}, "cab"),
        ({"scores": [2**60, 2**60 + 1, 0.5]}, "bac"),  # the same as floats
        ({"ranks": [10**400, -(10**400), 0]}, "bca"),  # no float is so large
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
    "no label": (
        {"prompt": "a", "completion": "b"},
        "field 'label': a completion without a label (expected true (desirable) or false, "
        "got prompt, completion); build prompts and completions without labels with chat=True",
    ),
    "label of a number": (
        {"prompt": "a", "completion": "b", "label": 1},
        "field 'label': not a label (expected true (desirable) or false, got a number, '1'); "
        "write it as true or false",
    ),
    "label of a huge number": (
        {"prompt": "a", "completion": "b", "label": 10**5000},
        "(expected true (desirable) or false, got a number)",
    ),
    "stepwise": (
        {"prompt": "a", "completions": ["b", "c"], "labels": [True, False]},
        "labels of single steps (stepwise supervision) are not read",
    ),
    "prompt alone": ({"prompt": "a"}, "build prompts without answers with prompts=True"),
    "nulls": (
        {"prompt": "a", "chosen": None, "rejected": None},
        "got prompt, chosen (null), rejected (null)",
    ),
    "another record": ({"question": "a"}, "name the field that holds the record with text_key"),
    "silent message": (
        {"prompt": [USER], "chosen": [BLUE], "rejected": [{"role": "assistant", "content": ""}]},
        "field 'rejected': an empty answer; leave the record out",
    ),
    "one whole conversation beside a text": (
        {"prompt": USER["content"], "chosen": [USER, BLUE], "rejected": [GREEN]},
        "only one of chosen and rejected repeats the prompt",
    ),
    "one whole conversation beside messages": (
        {"prompt": [USER], "chosen": [BLUE], "rejected": [USER, GREEN]},
        "or neither, got rejected does",
    ),
    "whole completion beside a text": (
        {"prompt": USER["content"], "completion": [USER, BLUE], "label": True},
        "field 'completion': a whole conversation beside a prompt that is a text (expected the "
        "messages that answer it, the first of the assistant, got a message of the user first)",
    ),
    "whole answer beside a text": (
        {"prompt": USER["content"], "answers": [[BLUE], [USER, BLUE]]},
        "field 'answers[1]': a whole conversation beside a prompt that is a text",
    ),
    "nothing behind the prompt": (
        {"prompt": [USER, BLUE], "chosen": [USER, BLUE], "rejected": [USER, BLUE]},
        "field 'chosen': an empty answer",
    ),
    "no prompt": ({"completion": "b", "label": True}, "field 'prompt': no prompt"),
    "one answer": ({"prompt": "a", "answers": ["b"]}, "field 'answers': not a list of answers"),
    "empty answer": ({"prompt": "a", "answers": ["b", ""]}, "'answers[1]': an empty answer"),
    "scores": ({"prompt": "a", "answers": ["b", "c"], "scores": [1]}, "field 'scores'"),
    "many answers": (
        {"prompt": "a", "answers": ("b",) * 257},
        "(expected a list of 2 to 256, got a list of 257)",
    ),
    "score that is none": (
        {"prompt": "a", "answers": ["b", "c"], "scores": [1, float("nan")]},
        "field 'scores[1]': not a number (expected a finite number, got 'nan')",
    ),
    "rank that is none": (
        {"prompt": "a", "answers": ["b", "c"], "ranks": [True, 2]},
        "field 'ranks[0]': not a number",
    ),
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


def test_messages_that_cannot_be_compared_for_their_depth_are_refused() -> None:
    def asked() -> dict[str, Any]:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        return {**USER, "given": deep}

    with pytest.raises(InputError, match=r"pairs.jsonl:7: the record is nested too deeply"):
        read_group({"chosen": [asked(), BLUE], "rejected": [asked(), GREEN]}, PLACE)


def test_a_record_of_several_shapes_is_read_as_the_pair_it_has() -> None:
    ranked = {"prompt": "?", "answers": ["a", "b"], "completion": "c", "label": True}
    assert said(read_group({**ranked, **SAME_PAIR["texts"]})) == SKY
    assert read_group(ranked).labels == (NO_LABEL, NO_LABEL)


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


BARE = """
name = "bare"
end = [{ control = "</s>" }]
[headers]
user = []
assistant = []
[ends]
user = []
"""


@pytest.fixture(scope="module")
def seams(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any, Template]:
    """A BPE by us and by its own library, and a template that puts nothing around a prompt."""
    from tokenizers import Tokenizer as Model

    folder = tmp_path_factory.mktemp("seams")
    path = train_bpe(folder)
    (folder / "bare.toml").write_text(BARE)
    template = load_template(folder / "bare.toml")
    assert isinstance(template, Template)
    return load_tokenizer(path), Model.from_file(str(path)), template


WORDS = st.text(st.sampled_from("the quick brown fx.é\n"), min_size=1, max_size=9)


@given(WORDS, st.lists(WORDS, min_size=2, max_size=3))
@example("the qui", ["ck brown", "et"])  # the first goes on in a token that the prompt began
@settings(deadline=None)
def test_a_token_across_the_seam_of_prompt_and_answer_is_shown_and_not_trained(
    seams: tuple[Tokenizer, Any, Template], prompt: str, answers: list[str]
) -> None:
    tokenizer, model, template = seams
    group = read_group({"prompt": prompt, "answers": answers})
    rendered = render_groups([group], template, tokenizer=tokenizer)
    ids: list[int] = []
    trained: list[bool] = []
    for answer in answers:
        encoded = model.encode(prompt + answer, add_special_tokens=False)
        ids += [*encoded.ids, model.token_to_id("</s>")]
        # The library tells which characters each token is of; a letter of two bytes may be in two.
        trained += [start >= len(prompt) for start, _ in encoded.offsets] + [True]
    assert rendered.ids.tolist() == ids
    assert (rendered.token_weights() > 0).tolist() == trained
    if prompt == "the qui":
        first = tokenizer.decode(rendered.ids[rendered.token_weights() > 0].tolist())
        assert first.startswith(" brown</s>")
