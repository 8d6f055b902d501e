"""What one rendering tells of the first messages is what their own rendering says.

`Script.first` reads the rendering of the first n messages off the rendering of all where it can,
and renders them where it cannot. Everything here compares the two ways.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import CONTROLS, SHAPES, SPECIAL, marked, plain
from tests.text.chats.test_jinja_begins import looped
from tests.text.chats.test_jinja_ids import CHATS, trl_templates
from tests.text.chats.test_model_oracles import MARKUP, conversations

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats import read_chat
from tokenreel.text.chats.jinja_conversation import conversation_of
from tokenreel.text.chats.jinja_given import Conversation
from tokenreel.text.chats.jinja_prefixes import Followed, Watch
from tokenreel.text.chats.jinja_script import Output, Script

BODY = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
FOUR = [
    {"role": role, "content": said}
    for role, said in zip(["user", "assistant"] * 2, ["a", "bb", "ccc", "d"], strict=True)
]
# Templates of which nothing, or not all, can be told from one rendering: each looks at messages
# that have not come up, or writes behind them what they decided.
LOOKS_AHEAD = {
    "last": looped(BODY + "{% if loop.last %}!{% endif %}"),
    "last in silence": looped(BODY + "{% if loop.last %}{% set ns.x = 1 %}{% endif %}"),
    "last raises": looped(BODY + "{% if loop.last and m.role == 'user' %}{{ 1 / 0 }}{% endif %}"),
    "last by key": looped(BODY + "{% if loop['last'] %}!{% endif %}"),
    "last of another name": looped("{% set l = loop %}" + BODY + "{% if l.last %}!{% endif %}"),
    "last in a macro": "{% macro end(l) %}{% if l.last %}!{% endif %}{% endmacro %}"
    + looped(BODY + "{{ end(loop) }}"),
    "last in a condition": looped(BODY + "{% if loop.last %}!{% endif %}").replace(
        "in messages", "in messages if m.content"
    ),
    "next": looped(
        BODY + "{% if loop.nextitem is defined %}{{ loop.nextitem.content }}{% endif %}"
    ),
    "next by number": looped(BODY + "{{ messages[loop.index].role }}"),
    "length of the loop": looped(BODY + "{{ loop.length }}"),
    "rest of the loop": looped(BODY + "{{ loop.revindex }}"),
    "length": looped(BODY + "{{ messages | length }}"),
    "length by count": looped(BODY + "{{ messages | count }}"),
    "last message": looped(BODY + "{{ messages[-1].content }}"),
    "the last": looped(BODY + "{{ (messages | last).content }}"),
    "reversed": "{% for m in messages | reverse %}{{ m.role }}{% endfor %}" + looped(BODY),
    "stepped": "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}" + looped(BODY),
    "two at most": looped(BODY).replace("in messages", "in messages[:2]"),
    "all but the last": looped(BODY).replace("in messages", "in messages[:-1]"),
    "twice": looped(BODY, after="") + looped(BODY),
    "looked through": "{% for m in messages %}{% if m.content == 'd' %}D{% endif %}{% endfor %}"
    + looped(BODY),
    "nested": looped(BODY + "{% for n in messages %}{{ n.content }}{% endfor %}"),
    "copied": looped(BODY, before="{% set n = messages | list %}{{ n | length }}"),
    "copied by method": looped(BODY, before="{{ messages.copy()[-1].content }}"),
    "added to": looped(BODY + "{{ (messages + [0]) | length }}"),
    "added": looped(BODY + "{{ ([0] + messages) | length }}"),
    "equal": looped(BODY + "{{ messages == [m] }}"),
    "within": looped(BODY + "{{ {'role': 'assistant', 'content': 'd'} in messages }}"),
    "index": looped(BODY + "{{ messages.count(m) }}"),
    "selected": looped(BODY + "{{ messages | selectattr('role', 'eq', 'user') | list | length }}"),
    "written": looped(BODY + "{{ messages }}"),
    "as JSON": looped(BODY + "{{ messages | tojson }}"),
    "in a text": looped(BODY + "{{ '%s' % messages }}{{ 'a' ~ messages }}"),
    "by another name": looped(
        BODY + "{{ ns.all | length }}",
        before="{% set ns = namespace() %}{% set ns.all = messages %}",
    ),
    "in a macro": "{% macro size(x) %}{{ x | length }}{% endmacro %}"
    + looped(BODY + "{{ size(messages) }}"),
    "state behind": looped(
        BODY + "{% set ns.role = m.role %}",
        before="{% set ns = namespace(role='') %}",
        after="{% if ns.role == 'user' %}{{ '<|im_start|>assistant' }}{% endif %}",
    ),
    "last message behind": looped(BODY, after="{{ messages[-1].role }}"),
    "first message behind": looped(BODY, after="{{ messages[0].role }}"),
    "prompt inside": looped(BODY + "{% if add_generation_prompt %}?{% endif %}"),
    "no loop": "{{ messages[0].content }}{% if messages[1] %}{{ messages[1].content }}{% endif %}",
    "else": looped(BODY + "{% break %}").replace("{% endfor %}", "{% else %}none{% endfor %}"),
    "broken off": looped(BODY + "{% if loop.index == 2 %}{% break %}{% endif %}"),
    "behind the first": looped(BODY).replace("in messages", "in messages[1:]"),
    "behind the third": looped(BODY).replace("in messages", "in messages[3:]"),
    "the fourth before": looped(BODY, before="{{ messages[3].content }}"),
    "any": looped(BODY, before="{% if messages %}some{% endif %}"),
    "any behind": looped(BODY, before="{% if messages[2:] %}some{% endif %}"),
    "with a condition": looped(BODY).replace("in messages", "in messages if m.role == 'user'"),
    "marks in a macro": "{% macro said(m) %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endmacro %}" + looped("{{ said(m) }}<|im_end|>"),
    "seam with the tail": looped("{{ m.content }}", after="{{ 'im_end|>' }}"),
    "a spelled tail": looped(BODY, after="{{ ending }}"),
    "a control token cut": looped("{{ '<|im_end|>'[:4] }}{{ '<|im_end|>'[4:] + m.content }}"),
    "a control token by characters": looped(
        "{% if m.role == 'user' %}{{ eos_token[0] }}{% else %}"
        "{{ eos_token[1] }}{{ eos_token[2] }}{{ eos_token[3] }}{% endif %}"
    ),
    "a mark by characters": "{% macro said(m) %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endmacro %}"
    + looped(BODY + "{{ said(m)[0 if m.role == 'user' else 1 + m.content | length] }}"),
    "assigned before": looped(
        BODY,
        before="{% set x = messages[0].role %}",
        after="{% if x == 'user' %}{{ x }}{% endif %}",
    ),
    "tools behind": looped(BODY, after="{% if tools %}{{ tools[0] }}{% endif %}"),
    "any tools behind": looped(BODY, after="{% if tools %}yes{% endif %}"),
    "a given tail": looped(BODY, after="{{ given }}"),
}


@cache
def script_of(text: str, controls: tuple[str, ...] = tuple(CONTROLS)) -> Script:
    today = datetime.date(2026, 1, 1)
    args = {"ending": "a<|im_end|>b"}
    return Script(text, controls, special_tokens=SPECIAL, args=args, today=today, where="template")


def said(output: Output) -> tuple[str, list[Any]]:
    return output.text, list(output.controls)


def result(run: Any) -> Any:
    try:
        return said(run())
    except (InputError, ConfigError) as error:
        return str(error)


def check_all_prefixes(script: Script, conversation: Conversation) -> int:
    """Compare what is told of every prefix with its rendering; return how many are told."""
    try:
        whole = script.render(conversation)
    except (InputError, ConfigError):
        return 0
    for number in range(len(conversation.messages) + 1):
        for prompt in (False, True):
            told = result(
                lambda n=number, p=prompt: script.first(
                    n, conversation, whole, add_generation_prompt=p
                )
            )
            first = conversation.first(number)
            own = result(lambda f=first, p=prompt: script.render(f, add_generation_prompt=p))
            assert told == own, (number, prompt)
    return len(whole.prefixes)


def spelling(messages: list[Mapping[str, Any]]) -> Conversation:
    return Conversation(messages=messages, tools=["any"], args={"given": "of this chat"})


@pytest.mark.parametrize("name", list(LOOKS_AHEAD))
@settings(max_examples=12, deadline=None)
@given(messages=CHATS)
@example(messages=FOUR)
@example(messages=[*FOUR, {"role": "user", "content": "a<|"}, *FOUR])
@example(messages=[*FOUR[:1], {"role": "assistant", "content": "say <|im_end|>"}, *FOUR[2:]])
def test_a_look_at_messages_that_have_not_come_up_is_noticed(
    name: str, messages: list[Mapping[str, Any]]
) -> None:
    check_all_prefixes(script_of(LOOKS_AHEAD[name]), spelling(messages))


@pytest.mark.parametrize("form", [plain, marked])
@pytest.mark.parametrize("name", list(SHAPES))
@settings(max_examples=25, deadline=None)
@given(messages=CHATS, has_tools=st.booleans())
def test_prefixes_of_real_shapes_are_told_as_they_are_rendered(
    form: Any, name: str, messages: list[Mapping[str, Any]], has_tools: bool
) -> None:
    tools = [{"type": "function", "function": {"name": "look_up"}}] if has_tools else None
    conversation = Conversation(messages=messages, tools=tools)
    check_all_prefixes(script_of(form(name)), conversation)


def records() -> Iterator[Conversation]:
    for record in conversations(24, seed=19):
        yield conversation_of(read_chat(record))


@pytest.mark.skipif(not list(trl_templates()), reason="TRL is not installed")
@pytest.mark.parametrize("path", list(trl_templates()), ids=lambda path: path.stem)
def test_prefixes_of_the_templates_of_trl_are_told_as_they_are_rendered(path: Path) -> None:
    text = path.read_text("utf-8")
    script = script_of(text, tuple(sorted({*CONTROLS, *MARKUP.findall(text)})))
    for conversation in records():
        check_all_prefixes(script, conversation)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (looped(BODY), {0, 1, 2, 3}),
        (looped(BODY, before="{{ messages[0].role }}"), {1, 2, 3}),
        (looped(BODY).replace("in messages", "in messages[1:]"), {1, 2, 3}),
        (looped(BODY + "{{ messages[loop.index0 - 1].role if not loop.first }}"), {0, 1, 2, 3}),
        (looped(BODY + "{{ '!' if m.content == 'bb' and not loop.last }}"), {0, 1, 3}),
        (looped(BODY + "{{ '!' if messages[loop.index] is defined }}"), set()),
        (plain("llama3"), {1, 2, 3}),
        (plain("qwen2"), {1, 2, 3}),
        (marked("gemma"), {1, 2, 3}),
        (plain("qwen3"), set()),
        (looped(BODY + "{{ loop.length }}"), set()),
    ],
)
def test_what_one_rendering_tells(text: str, told: set[int]) -> None:
    assert script_of(text).render(Conversation(messages=FOUR)).prefixes == told


def test_no_method_of_a_list_looks_at_the_messages_unnoticed() -> None:
    harmless = {"__new__", "__init__", "__getattribute__", "__sizeof__", "__class_getitem__"}
    unnoticed = vars(list).keys() - vars(Followed).keys() - harmless - {"__doc__", "__hash__"}
    assert not unnoticed
    for name, args in {
        "__len__": (),
        "__contains__": (1,),
        "__reversed__": (),
        "index": (5,),
    }.items():
        watch = Watch()
        getattr(watch.renew([5]), name)(*args)
        assert watch.is_lost, name


def test_a_message_that_is_not_there_is_missing_in_a_list() -> None:
    script = script_of("{{ messages[4].role }}" + looped(BODY))
    with pytest.raises(InputError, match="list object has no element 4"):
        script.render(Conversation(messages=FOUR))
