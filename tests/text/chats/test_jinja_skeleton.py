"""Chats that are written by the skeleton of their kind come out as they do from the template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import SHAPES, SPECIAL, marked, plain, train_bpe

from tokenreel.errors import InputError
from tokenreel.text.chats import Rendered, read_chat, render
from tokenreel.text.chats.jinja_conversation import conversation_of
from tokenreel.text.chats.jinja_masks import Checks, mask
from tokenreel.text.chats.jinja_render import ModelRenderer
from tokenreel.text.chats.jinja_skeleton import Skeletons
from tokenreel.text.chats.jinja_tokens import Cutter, Texts
from tokenreel.text.chats.messages import Chat
from tokenreel.text.chats.model_template import ModelTemplate, model_template
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

FORMS = [marked, plain]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(train_bpe(tmp_path_factory.mktemp("jinja")))


@pytest.fixture(scope="module")
def stripping(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    flags = {"<|im_end|>": {"lstrip": True}, "<|im_start|>": {"rstrip": True}}
    return load_tokenizer(train_bpe(tmp_path_factory.mktemp("strips"), **flags))


def outcome(chats: Sequence[Chat], template: ModelTemplate, tokenizer: Tokenizer) -> Any:
    """Return all that a rendering tells, or the words by which a chat is refused."""
    try:
        made = render(chats, template, tokenizer=tokenizer)
    except InputError as error:
        return error.what
    return [_chat(made, number) for number in range(len(chats))]


def _chat(made: Rendered, number: int) -> Any:
    turns = made.turns[made.turn_offsets[number] : made.turn_offsets[number + 1]]
    return made.chat_ids(number).tolist(), turns.tolist(), list(made.unrendered[number])


def same_together_as_alone(
    chats: Sequence[Chat], template: ModelTemplate, tokenizer: Tokenizer
) -> int:
    """Check that chats come out of one call as they do one by one; return how many do.

    A call for one chat never has a skeleton: these are made of the second chat of a kind.
    """
    alone = [outcome([chat], template, tokenizer) for chat in chats]
    kept = [number for number, made in enumerate(alone) if not isinstance(made, str)]
    together = outcome([chats[number] for number in kept], template, tokenizer)
    assert together == [alone[number][0] for number in kept]
    for number, made in enumerate(alone):  # what is refused alone is refused behind its like
        if isinstance(made, str):
            assert outcome([*(chats[n] for n in kept), chats[number]], template, tokenizer) == made
    return len(kept)


WORDS = ["hello to you", "it is four. ", "\nwhat?", "two", "the quick fox"]
HOSTILE = [" ", "\n", "</think>", "<think>", "<|im_end|>", "<|im", "[INST]", "user", "a" * 70]
HOSTILE += ["é", "\u2028", "\0", "\U000f0001", "\U0010fffd", "%s", "%", "{0}"]
TEXTS = st.lists(
    st.sampled_from([*WORDS, *HOSTILE]),
    min_size=1,
    max_size=4,
).map("".join)
SAID = st.one_of(*[st.sampled_from(WORDS)] * 3, TEXTS, st.just(""))
CALL = st.builds(
    lambda name, number, text: [
        {"type": "function", "function": {"name": name, "arguments": {"x": number, "y": text}}}
    ],
    st.sampled_from(["add", "weather"]),
    st.one_of(st.integers(-3, 10**30), st.floats(-9, 9), st.booleans(), st.none()),
    SAID,
)


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw chats of a few kinds, each often enough to have a skeleton."""
    made = []
    for roles in draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=3)):
        for _ in range(draw(st.integers(3, 5))):
            made.append({"messages": [draw(_message(role)) for role in roles]})
            if "call" in roles:
                made[-1]["tools"] = [TOOL]
    return draw(st.permutations(made))


_KINDS = [
    ("user", "assistant"),
    ("system", "user", "assistant"),
    ("user", "assistant", "user", "assistant"),
    ("user", "reasoned"),
    ("user", "call", "tool", "assistant"),
    ("user", "parts"),
]


def _message(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    answer = {"role": st.just("assistant"), "content": SAID}
    if kind == "reasoned":
        return st.fixed_dictionaries({**answer, "reasoning_content": SAID})
    if kind == "call":
        return st.fixed_dictionaries(
            {**answer, "content": st.sampled_from(["", "hello"]), "tool_calls": CALL}
        )
    if kind == "parts":
        part = st.fixed_dictionaries({"type": st.just("text"), "text": SAID})
        return st.fixed_dictionaries({**answer, "content": st.lists(part, min_size=1, max_size=2)})
    return st.fixed_dictionaries({"role": st.just(kind), "content": SAID})


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=records(), form=st.sampled_from(FORMS))
def test_any_chats_come_out_together_as_they_do_alone(
    name: str, drawn: list[dict[str, Any]], form: Any, bpe: Tokenizer
) -> None:
    template = model_template(form(name), special_tokens=SPECIAL)
    same_together_as_alone([read_chat(record) for record in drawn], template, bpe)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=records())
def test_blanks_that_control_tokens_swallow_are_swallowed_in_every_chat(
    drawn: list[dict[str, Any]], stripping: Tokenizer
) -> None:
    template = model_template(marked("qwen2"), special_tokens=SPECIAL)
    same_together_as_alone([read_chat(record) for record in drawn], template, stripping)


# What a template may do with a text; whatever it is, a skeleton must not change the outcome.
USES = """
c | upper                  c[0]                        c[:3]                    c | length
c | int                    c | float                   c | list | join('-')     c | first
c in 'hello to you'        'four' in c                 c == 'two'               c != 'two'
c is string                c is iterable               c is sequence            c is mapping
c is defined               c.upper is defined          c.parts is defined       c.get is defined
c._parts is defined        {'two': 1}[c] is defined    {'two': 1}.get(c, 2)     c is in ['two']
c is eq 'two'              c > 'two'                   c * 2                    '%s!' % c
'{}!'.format(c)            c | replace('o', '0')       c | default('x', true)   c | default('x')
c ~ 1 ~ c                  c + c                       [c, c] | join('<|im_end|>')
c | tojson                 {'k': [c, 1]} | tojson      c | tojson | length      c | string | trim
c.split('o') | length      c.split('o')[0]             c.split('o')[-1]         c.split('o')[1]
c.split()[0]               c.strip('h') | trim         c.startswith('t')
c.endswith(('o', 'u'))    c.endswith('o') and c
c.rstrip().lstrip('t')     messages | map(attribute='content') | join           c is none or c
(c + '<|im_end|>') | trim  ('a' + c) | trim | upper    c | e                    c | safe
c | reverse                c | wordcount               c | string | length      c if c else 'none'
messages | tojson          messages | length           loop.changed(c)          not c
c is lower                 c is sameas c               c.split('<|im_end|>')[0]  '<|im' + c
c.__class__ is defined     [c] == ['two']              [c, 'two'] | unique | list | length
(c, c) is eq (c, 'two')    c | trim('hu')              c | center(20)           c is number
messages | selectattr('content', 'eq', 'two') | list | length                   [c] | sort | first
messages | groupby('content') | length                 dict(a=c) | tojson       c | attr('upper')
"""
CONTENTS = [
    "two",
    "hello to you",
    "it is four. ",
    "\tso",
    "TWO",
    "5",
    "two",
    "o",
    "  ",
    "what?",
    "\\",
]


def _uses() -> list[str]:
    return [use.strip() for line in USES.split("\n") for use in line.split("  ") if use.strip()]


@pytest.mark.parametrize("use", _uses())
def test_a_skeleton_changes_nothing_whatever_a_template_does_with_a_text(
    use: str, bpe: Tokenizer
) -> None:
    text = (
        "{% for m in messages %}{% set c = m.content %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' %}{% generation %}{{ " + use + " }}|{{ c }}<|im_end|>"
        "{% endgeneration %}{% else %}{{ c }}<|im_end|>{% endif %}{% endfor %}"
    )
    chats = [
        read_chat({"messages": [{"role": "user", "content": "hello"}, _answer(content)]})
        for content in CONTENTS
    ]
    same_together_as_alone(chats, model_template(text), bpe)


def _answer(content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def _fits(text: str, chats: Sequence[Chat], tokenizer: Tokenizer) -> list[bool]:
    """Return for each chat whether it is written by a skeleton."""
    renderer = ModelRenderer(model_template(text, special_tokens=SPECIAL), tokenizer)
    skeletons, checks = Skeletons(Cutter(tokenizer), Texts()), Checks()
    found = []
    for chat in chats:
        script, conversation = renderer._script(chat), conversation_of(chat)
        found.append(skeletons.fit("kind", script, conversation) is not None)
        made = mask(script, conversation, [len(chat.messages) - 1], checks)
        skeletons.learn("kind", script, conversation, made)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_third_usual_chat_of_a_kind_needs_no_rendering(
    name: str, form: Any, bpe: Tokenizer
) -> None:
    chats = [
        read_chat({"messages": [{"role": "user", "content": f"hello {n}"}, _answer(f"you {n}")]})
        for n in range(3)
    ]
    assert _fits(form(name), chats, bpe) == [False, False, True]


@pytest.mark.parametrize("name", ["qwen2", "llama3"])
def test_calls_with_other_numbers_need_no_rendering(name: str, bpe: Tokenizer) -> None:
    chats = []
    for number in range(3, 6):
        call = {"function": {"name": "add", "arguments": {"x": number, "y": "two"}}}
        asked = {"role": "user", "content": "hello"}
        messages = [asked, _answer("", tool_calls=[{"type": "function", **call}])]
        chats.append(read_chat({"messages": messages, "tools": [TOOL]}))
    assert _fits(plain(name), chats, bpe) == [False, False, True]


@pytest.mark.parametrize("said", ["", "hello <|im_end|>", "\U000f0001", "a\0b", "x</think>y"])
def test_a_chat_that_may_be_rendered_otherwise_is_rendered(said: str, bpe: Tokenizer) -> None:
    chats = [
        read_chat({"messages": [{"role": "user", "content": "hello"}, _answer(content)]})
        for content in ("it is", "it was", said)
    ]
    assert _fits(plain("qwen3"), chats, bpe) == [False, False, False]


def test_an_answer_that_is_trained_in_some_chats_alone_is_checked_in_these(bpe: Tokenizer) -> None:
    """Chats of the same kinds, of which the first trains no answer that the template rewrites."""
    said = [
        {"role": "user", "content": "hello"},
        _answer("it is"),
        {"role": "user", "content": "?"},
    ]
    calm = [*said[:1], {**said[1], "weight": 0}, said[2], _answer("four")]
    strict = [*said, _answer("four")]
    template = model_template(plain("qwen3"), special_tokens=SPECIAL)
    chats = [read_chat({"messages": messages}) for messages in (calm, calm, calm, strict)]
    with pytest.raises(InputError, match="in another way when more messages follow"):
        render(chats, template, tokenizer=bpe)


def test_weights_are_those_of_each_chat(bpe: Tokenizer) -> None:
    chats = [
        read_chat(
            {"messages": [{"role": "user", "content": "hello"}, _answer("four", weight=weight)]}
        )
        for weight in (1, 0.5, 0.25, 0.125, 0, 0, 0)
    ]
    made = render(chats, model_template(marked("qwen2")), tokenizer=bpe)
    assert np.array_equal(made.turns["weight"][1::2], [1, 0.5, 0.25, 0.125, 0, 0, 0])
