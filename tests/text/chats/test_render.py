"""What rendering promises for every chat, tokenizer and template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats import (
    BUILT_IN,
    CHATML,
    LLAMA3,
    NGPT,
    Chat,
    Message,
    Template,
    ToolCall,
    read_chat,
    render,
    render_prompt,
)
from tokenreel.text.chats.jinja_tokens import Cutter
from tokenreel.text.chats.template import Control, Name, Parts, Text, spelled
from tokenreel.text.chats.template_messages import read_given
from tokenreel.text.chats.template_text import encode_writings, turns_at, write
from tokenreel.text.chats.token_layout import frame
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import NGPT_SPECIALS, Encoded, Tokenizer
from tokenreel.text.turns import ROLE_CODES

SPELLED = ["<|im_start|>", "<|im_end|>\n<|im_start|>assistant\n", "<|eot_id|>", "[INST]", "</s>"]
SPELLED += NGPT_SPECIALS.values()
CONTENT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["", " ", "\n", "[x]", "🙂", "e\u0301", *SPELLED]),
    st.builds("{}{}{}".format, st.text("a \n"), st.sampled_from(SPELLED), st.text("a \n")),
)
CALLS = st.lists(
    st.builds(ToolCall, name=CONTENT, arguments=st.sampled_from([None, "{}", '{"a":1}'])),
    max_size=2,
).map(tuple)
WEIGHTS = st.sampled_from([None, None, None, 0.0, 0.5])


def message_of(roles: tuple[str, ...], *, tools: bool) -> st.SearchStrategy[Message]:
    return st.sampled_from(roles).flatmap(
        lambda role: st.builds(
            Message,
            role=st.just(role),
            content=CONTENT,
            name=st.none() | CONTENT,
            calls=CALLS if role == "assistant" and tools else st.just(()),
            weight=st.just(None) if role == "tool" else WEIGHTS,
        )
    )


@st.composite
def templates_and_chats(draw: st.DrawFn) -> tuple[Template, list[Chat]]:
    template = draw(st.sampled_from(list(BUILT_IN.values())))
    tools = template.calls is not None
    roles = tuple(role for role, _ in template.headers)
    messages = st.lists(message_of(roles, tools=tools), min_size=1, max_size=6).map(tuple)
    schemas = st.sampled_from([(), ('{"name":"<|im_end|>"}',)] if tools else [()])
    chats = st.builds(Chat, messages=messages, tools=schemas)
    return template, draw(st.lists(chats, min_size=1, max_size=4))


CASES = templates_and_chats()
QUICK = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def turn_slice(turn: Any) -> tuple[int, int, int, int]:
    start, length = int(turn["start"]), int(turn["length"])
    head, tail = int(turn["head"]), int(turn["tail"])
    return start, start + head, start + length - tail, start + length


@QUICK
@given(case=CASES)
def test_only_the_template_puts_control_ids(
    case: tuple[Template, list[Chat]], tokenizer: Tokenizer
) -> None:
    template, chats = case
    controls = np.array(list(tokenizer.control_ids.values()))
    headers = dict(template.headers)

    def count(parts: Parts) -> int:
        return sum(isinstance(part, Control) for part in parts)

    rendered = render(chats, template, tokenizer=tokenizer)
    for number in range(len(chats)):
        roles = [list(ROLE_CODES)[code] for code in rendered.chat_turns(number)["role"]]
        structural = count(template.preamble) + sum(
            count((*headers[role], *template.end_of(role), *template.tail)) for role in roles
        )
        assert int(np.isin(rendered.chat_ids(number), controls).sum()) == structural


@QUICK
@given(case=CASES)
def test_weights_are_where_the_turn_says_and_never_on_a_role(
    case: tuple[Template, list[Chat]], tokenizer: Tokenizer
) -> None:
    template, chats = case
    rendered = render(chats, template, tokenizer=tokenizer)
    weights = rendered.token_weights()
    assert len(weights) == len(rendered.ids)
    for number in range(len(chats)):
        of_chat = weights[rendered.offsets[number] : rendered.offsets[number + 1]]
        trained = np.zeros(len(of_chat), np.float32)
        for turn in rendered.chat_turns(number):
            _, first, stop, _ = turn_slice(turn)
            trained[first:stop] = turn["weight"]
        assert of_chat.tolist() == trained.tolist()


@QUICK
@given(case=CASES)
def test_a_trained_span_decodes_to_the_content_and_the_end_of_turn(
    case: tuple[Template, list[Chat]], tokenizer: Tokenizer
) -> None:
    template, chats = case
    end = spelled(template.end)
    rendered = render(chats, template, tokenizer=tokenizer)
    for number, chat in enumerate(chats):
        if chat.tools:
            continue
        turns = rendered.chat_turns(number)[-len(chat.messages) :]
        for message, turn in zip(chat.messages, turns, strict=True):
            _, first, stop, _ = turn_slice(turn)
            calls = "".join(
                f"{template.calls.open}{call.as_json()}{template.calls.close}"
                for call in message.calls
                if template.calls
            )
            said = tokenizer.decode(rendered.chat_ids(number)[first:stop])
            assert said == message.content + calls + end


@QUICK
@given(case=CASES)
def test_text_between_two_control_tokens_is_encoded_as_one(
    case: tuple[Template, list[Chat]], tokenizer: Tokenizer
) -> None:
    template, chats = case
    rendered = render(chats, template, tokenizer=tokenizer)
    controls = np.array(list(tokenizer.control_ids.values()))
    for number in range(len(chats)):
        ids = rendered.chat_ids(number)
        for stretch in np.split(ids, np.flatnonzero(np.isin(ids, controls))):
            text = stretch[np.isin(stretch, controls).sum() :]
            alone = tokenizer.encode_batch([tokenizer.decode(text)]).ids
            assert text.tolist() == alone.tolist()


@QUICK
@given(case=CASES)
def test_rendering_many_chats_is_rendering_each(
    case: tuple[Template, list[Chat]], tokenizer: Tokenizer
) -> None:
    template, chats = case
    together = render(chats, template, tokenizer=tokenizer)
    for number, chat in enumerate(chats):
        alone = render([chat], template, tokenizer=tokenizer)
        assert together.chat_ids(number).tolist() == alone.ids.tolist()
        assert together.chat_turns(number).tolist() == alone.turns.tolist()


@QUICK
@given(case=CASES)
def test_fewer_messages_are_a_prefix_and_prompts_are_what_training_saw(
    case: tuple[Template, list[Chat]], tokenizer: Tokenizer
) -> None:
    template, chats = case
    chat = chats[0]
    rendered = render([chat], template, tokenizer=tokenizer)
    injected = len(rendered.turns) - len(chat.messages)
    for k, message in enumerate(chat.messages):
        start, first, _, _ = turn_slice(rendered.turns[k + injected])
        if k:
            part = render(
                [Chat(messages=chat.messages[:k], tools=chat.tools)], template, tokenizer=tokenizer
            )
            assert part.ids.tolist() == rendered.ids[:start].tolist()
        if message.role == "assistant":
            prompt = render_prompt(
                chat.messages[:k], template, tokenizer=tokenizer, tools=chat.tools
            )
            assert prompt.tolist() == rendered.ids[:first].tolist()


@QUICK
@given(case=CASES, policy=st.sampled_from(["assistant", "last_assistant", "all", {"user": 0.25}]))
def test_no_policy_trains_the_result_of_a_tool(
    case: tuple[Template, list[Chat]], policy: Any, byte: Tokenizer
) -> None:
    template, chats = case
    rendered = render(chats, template, tokenizer=byte, policy=policy)
    is_tool = rendered.turns["role"] == ROLE_CODES["tool"]
    assert not rendered.turns["weight"][is_tool].any()


def said(*roles: str, **more: Any) -> Chat:
    return Chat(messages=tuple(Message(role=role, content="x", **more) for role in roles))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("assistant", [0, 0, 1, 0, 1]),
        ("last_assistant", [0, 0, 0, 0, 1]),
        ("all", [1, 1, 1, 0, 1]),
        ({"user": 0.5, "assistant": 2}, [0, 0.5, 2, 0, 2]),
        ({}, [0, 0, 0, 0, 0]),
    ],
)
def test_a_policy_weighs_turns_by_role(policy: Any, expected: list[float], byte: Tokenizer) -> None:
    chat = said("system", "user", "assistant", "tool", "assistant")
    rendered = render([chat, chat], CHATML, tokenizer=byte, policy=policy)
    assert rendered.turns["weight"].tolist() == expected * 2


def test_a_messages_own_weight_outranks_the_policy(byte: Tokenizer) -> None:
    rendered = render([said("user", "assistant", weight=0.5)], CHATML, tokenizer=byte)
    assert rendered.turns["weight"].tolist() == [0.5, 0.5]


def test_ngpt_is_role_content_end_with_the_default_system_text(byte: Tokenizer) -> None:
    rendered = render([said("user", "assistant")], NGPT, tokenizer=byte)
    system, user, assistant, end = (
        byte.control_ids[NGPT_SPECIALS[name]] for name in ("sys", "usr", "asst", "eot")
    )
    default = list(b"you are a helpful assistant.")
    x = ord("x")
    assert rendered.ids.tolist() == [
        system, *default, end, user, x, end, assistant, x, end
    ]  # fmt: skip
    assert rendered.turns["start"].tolist() == [0, 30, 33]


def test_chatml_shows_names_tools_and_calls_as_text(byte: Tokenizer) -> None:
    record = {
        "messages": [
            {"role": "user", "content": "q", "name": "ann"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "3", "name": "f"},
        ],
        "tools": [{"name": "f"}],
    }
    rendered = render([read_chat(record)], CHATML, tokenizer=byte)
    assert byte.decode(rendered.ids) == (
        '<|im_start|>system\n\n\n<tools>\n{"name":"f"}\n</tools><|im_end|>\n'
        "<|im_start|>user name=ann\nq<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"arguments":{},"name":"f"}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool name=f\n3<|im_end|>\n"
    )
    assert rendered.turns["weight"].tolist() == [0, 0, 1, 0]


def test_llama3_begins_once_and_the_beginning_is_in_no_turn(byte: Tokenizer) -> None:
    rendered = render([said("user", "assistant")] * 2, LLAMA3, tokenizer=byte)
    begin = byte.control_ids["<|begin_of_text|>"]
    for number in range(2):
        ids, turns = rendered.chat_ids(number), rendered.chat_turns(number)
        assert np.flatnonzero(ids == begin).tolist() == [0]
        assert turns["start"][0] == 1


def test_no_chats_render_to_nothing(byte: Tokenizer) -> None:
    rendered = render([], NGPT, tokenizer=byte)
    assert (len(rendered), len(rendered.ids), len(rendered.turns)) == (0, 0, 0)


PLACE = Provenance(file="c.jsonl", row=2)


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        (Chat(messages=(Message(role="tool", content=""),), provenance=PLACE),
         "c.jsonl:3: message 1, field 'role': the template 'ngpt' has no such role (expected "
         "one of system, user, assistant, got 'tool')"),
        (Chat(messages=(Message(role="assistant", content="", calls=(ToolCall(name="f"),)),),
              provenance=PLACE),
         "c.jsonl:3: message 1, field 'tool_calls': the template 'ngpt' has no place for tool "
         "calls; use a template that has one, or leave the calls out"),
        (Chat(messages=(Message(role="user", content=""),), tools=("{}",), provenance=PLACE),
         "c.jsonl:3: field 'tools': the template 'ngpt' has no place for tool schemas; use a "
         "template that has one, or leave the tools out"),
        (Chat(messages=(Message(role="user", content="", weight=-1.0),), provenance=PLACE),
         "c.jsonl:3: message 1, field 'weight': not a weight (expected a number from 0 up, "
         "got -1.0)"),
    ],
)  # fmt: skip
def test_what_a_template_cannot_render_is_an_error_with_its_place(
    chat: Chat, message: str, byte: Tokenizer
) -> None:
    with pytest.raises(InputError) as caught:
        render([said("user"), chat], NGPT, tokenizer=byte)
    assert str(caught.value) == message


def test_a_weighted_tool_result_is_refused(byte: Tokenizer) -> None:
    chat = Chat(messages=(Message(role="tool", content="", weight=1.0),))
    with pytest.raises(InputError, match=r"message 1.*a tool's result is never trained"):
        render([chat], CHATML, tokenizer=byte)


def test_a_name_too_long_for_the_turn_table_is_refused(byte: Tokenizer) -> None:
    chat = Chat(messages=(Message(role="user", content="", name="n" * 70_000),))
    with pytest.raises(InputError, match=r"field 'name'.*at most 65,535 tokens, got 70,0"):
        render([chat], CHATML, tokenizer=byte)


def test_the_longest_header_that_the_turn_table_can_count_is_rendered(byte: Tokenizer) -> None:
    def named(size: int) -> Chat:
        return Chat(messages=(Message(role="user", content="", name="n" * size),))

    around = int(render([named(1)], CHATML, tokenizer=byte).turns["head"][0]) - 1
    longest = render([named(65_535 - around)], CHATML, tokenizer=byte)
    assert longest.turns["head"].tolist() == [65_535]
    with pytest.raises(InputError, match=r"field 'name'.*at most 65,535 tokens, got 65,536"):
        render([named(65_536 - around)], CHATML, tokenizer=byte)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("everything", "no such loss policy"),
        ({"robot": 1}, "a loss policy for an unknown role"),
        ({"tool": 1}, "a loss policy that trains tool results"),
        ({"user": -1}, "the weight of role 'user' is not a number from 0 up"),
    ],
)
def test_a_wrong_policy_is_refused(policy: Any, message: str, byte: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=message):
        render([said("user")], CHATML, tokenizer=byte, policy=policy)


# Templates of any form: parts in any order, text or control tokens anywhere, ends of roles.
CONTROL = st.sampled_from(["<|im_start|>", "<|im_end|>", "<|eot_id|>"]).map(
    lambda token: Control(control=token)
)
TEXT = st.sampled_from(["", "\n", "\n\n", " ", "user", " hello"]).map(lambda text: Text(text=text))
PARTS = st.lists(st.one_of(CONTROL, TEXT), max_size=3).map(tuple)
HEADERS = st.tuples(PARTS, st.sampled_from([(), (), (Name(name=" name="),)]), PARTS).map(
    lambda three: (*three[0], *three[1], *three[2])
)


def template_of(headers: Any, end: Any) -> st.SearchStrategy[Template]:
    return st.builds(
        Template,
        name=st.just("any"),
        headers=st.tuples(headers, headers, headers).map(
            lambda three: tuple(zip(("system", "user", "assistant"), three, strict=True))
        ),
        end=end,
        tail=PARTS,
        preamble=PARTS,
        lead=st.sampled_from(["", " "]),
        strip=st.booleans(),
        ends=st.lists(end, max_size=1).map(lambda parts: tuple(("user", part) for part in parts)),
    )


ANY_TEMPLATE = template_of(HEADERS, PARTS)
TIGHT_TEMPLATE = template_of(
    st.tuples(TEXT, CONTROL, PARTS, CONTROL, TEXT, st.just(Name(name=" ")), TEXT).map(
        lambda parts: (*parts[:2], *parts[2], *parts[3:])
    ),
    st.tuples(TEXT, CONTROL, PARTS, CONTROL).map(lambda parts: (*parts[:2], *parts[2], parts[3])),
)
ANY_CHATS = st.lists(
    st.builds(
        Chat,
        messages=st.lists(
            message_of(("system", "user", "assistant"), tools=False), min_size=1, max_size=4
        ).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


@settings(QUICK, max_examples=100)
@given(template=TIGHT_TEMPLATE, chats=ANY_CHATS)
def test_the_fast_way_is_the_way_for_every_template(
    template: Template, chats: list[Chat], bpe: Tokenizer
) -> None:
    assert all(frame(template, role) for role, _ in template.headers)
    fast = render(chats, template, tokenizer=bpe)
    read = read_given(chats, template)
    written = [write(chat, template) for chat in read.by_chat()]
    ids, offsets, places = encode_writings(written, Cutter(bpe))
    assert fast.ids.tolist() == ids.tolist()
    assert fast.offsets.tolist() == offsets.tolist()
    turns = turns_at(places, fast.turns["role"], fast.turns["weight"])
    assert fast.turns.tolist() == turns.tolist()


@settings(QUICK, max_examples=50)
@given(template=ANY_TEMPLATE, chats=ANY_CHATS)
def test_a_trained_token_has_no_character_of_a_header_or_tail(
    template: Template, chats: list[Chat], bpe: Tokenizer
) -> None:
    rendered = render(chats, template, tokenizer=bpe, policy="all")
    for number, chat in enumerate(chats):
        ids = rendered.chat_ids(number)
        for message, turn in zip(chat.messages, rendered.chat_turns(number), strict=True):
            _, first, stop, _ = turn_slice(turn)
            content = message.content.strip() if template.strip else message.content
            whole = template.lead + content + spelled(template.end_of(message.role))
            # What is left out are bytes that a token shares with the header or the tail.
            assert bpe.decode(ids[first:stop]).strip("\ufffd") in whole


class Lowering:
    """A tokenizer of somebody's own: it changes the text, and tells no offsets."""

    def __init__(self, inner: Tokenizer, *, melting: str = "") -> None:
        self._inner, self._melting = inner, melting

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size

    @property
    def control_ids(self) -> Mapping[str, int]:
        return self._inner.control_ids

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        melted = [text.replace(self._melting, "?") if self._melting else text for text in texts]
        return self._inner.encode_batch([text.lower() for text in melted])

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return self._inner.decode(ids)


LOUD = Template(
    name="loud",
    headers=tuple(
        (role, (Control(control="<|im_start|>"), Text(text=f"{role.upper()}\n")))
        for role in ("user", "assistant")
    ),
    end=CHATML.end,
)


def test_an_answer_is_found_where_a_tokenizer_without_offsets_changes_the_text(
    byte: Tokenizer,
) -> None:
    chat = read_chat({"prompt": "Two?", "completion": "FOUR"})
    rendered = render([chat], LOUD, tokenizer=Lowering(byte))
    trained = rendered.ids[rendered.token_weights() > 0]
    assert byte.decode(trained) == "four<|im_end|>"


def test_an_answer_that_cannot_be_found_is_an_error_with_its_place(byte: Tokenizer) -> None:
    chat = replace(read_chat({"prompt": "Two?", "completion": "FOUR"}), provenance=PLACE)
    with pytest.raises(InputError, match=r"c\.jsonl:3: message 2: the place where an answer"):
        render([chat], LOUD, tokenizer=Lowering(byte, melting="\nF"))


def test_a_prompt_needs_the_control_tokens_of_its_template(byte: Tokenizer) -> None:
    foreign = replace(CHATML, end=(Control(control="<|nowhere|>"),))
    with pytest.raises(ConfigError, match=r"the tokenizer has no control token '<\|nowhere\|>'"):
        render_prompt([Message(role="user", content="hi")], foreign, tokenizer=byte)
