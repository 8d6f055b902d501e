"""Records of every shape become the same messages, or an error that says where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats import Message, ToolCall, read_chat
from tokenreel.text.chats.messages import UNRENDERED_REASONING
from tokenreel.text.provenance import Provenance

QUESTION, ANSWER = Message(role="user", content="q"), Message(role="assistant", content="a")
PLACE = Provenance(file="chats.jsonl", row=6)


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
        {"messages": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"conversations": [{"role": "user", "content": "q"}, {"from": "model", "value": "a"}]},
        {"instruction": "q", "input": "", "output": "a"},
        {"instruction": "q", "context": " ", "response": "a"},
        {"instruction": "q", "output": "a"},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "q"}], "name": None},
                {"role": "assistant", "content": "a", "tool_calls": None, "weight": None},
            ]
        },
    ],
)
def test_every_shape_of_the_same_chat_reads_alike(record: dict[str, Any]) -> None:
    assert read_chat(record).messages == (QUESTION, ANSWER)


def test_an_instruction_and_its_input_are_one_question() -> None:
    chat = read_chat({"instruction": "sum", "context": "1 2", "response": "3"})
    assert chat.messages[0].content == "sum\n\n1 2"


def test_a_prompt_weighs_nothing_and_its_completion_what_the_policy_says() -> None:
    chat = read_chat({"prompt": "q", "completion": "a"})
    assert [message.weight for message in chat.messages] == [0.0, None]
    pair = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    several = read_chat({"prompt": [*pair, pair[0]], "completion": [pair[1]]})
    assert [message.weight for message in several.messages] == [0.0, 0.0, 0.0, None]


@pytest.mark.parametrize("key", ["system", "system_prompt"])
@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "user", "content": "q"}]},
        {"conversations": [{"from": "human", "value": "q"}]},
        {"instruction": "q", "output": "a"},
        {"prompt": "q", "completion": "a"},
        {"prompt": [{"role": "user", "content": "q"}], "completion": "a"},
    ],
)
def test_the_system_text_of_a_record_is_its_first_turn(record: dict[str, Any], key: str) -> None:
    plain = read_chat(record).messages
    system, *others = read_chat({**record, key: "s"}).messages
    assert (system.role, system.content, tuple(others)) == ("system", "s", plain)
    assert read_chat({**record, key: ""}).messages == plain


def test_a_system_text_that_is_said_twice_is_one_turn() -> None:
    said = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]}
    twice = {**said, "system": "s", "system_prompt": "s"}
    assert read_chat(twice).messages == read_chat(said).messages


@pytest.mark.parametrize(
    "record", [{"instruction": "q", "output": "a"}, {"prompt": "q", "response": "a"}]
)
def test_a_history_becomes_turns_behind_the_system_text(record: dict[str, Any]) -> None:
    chat = read_chat({**record, "system": "s", "history": [["q1", "a1"], ("q2", "a2")]})
    assert [message.content for message in chat.messages] == ["s", "q1", "a1", "q2", "a2", "q", "a"]
    roles = ["system"] + ["user", "assistant"] * 3
    assert [message.role for message in chat.messages] == roles
    assert read_chat({**record, "history": []}).messages == read_chat(record).messages


def test_a_response_answers_a_prompt_as_a_completion_does() -> None:
    asked = read_chat({"prompt": "q", "completion": "a"})
    assert read_chat({"prompt": "q", "response": "a"}) == asked


@pytest.mark.parametrize("key", ["reasoning_content", "thinking"])
def test_the_reasoning_of_a_message_is_kept_and_said_to_be_unrendered(key: str) -> None:
    answer = {"role": "assistant", "content": "a"}
    thoughtless = read_chat({"prompt": "q", "completion": [{**answer, key: ""}]})
    assert thoughtless == read_chat({"prompt": "q", "completion": [answer]})
    chat = read_chat({"prompt": "q", "completion": [{**answer, key: "so"}]})
    assert chat.messages[1].reasoning == "so" and chat.messages[1].content == "a"
    assert (thoughtless.unrendered, chat.unrendered) == ((), (UNRENDERED_REASONING,))


def test_sharegpt_calls_and_observations_become_a_call_and_a_tool_result() -> None:
    record = {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"b": 2, "a": 1}}'},
            {"from": "observation", "value": "3"},
        ]
    }
    _, called, result = read_chat(record).messages
    assert called.calls == (ToolCall(name="add", arguments='{"a":1,"b":2}'),)
    assert (called.role, called.content, result.role) == ("assistant", "", "tool")


def test_train_and_weight_are_kept() -> None:
    answers: list[dict[str, Any]] = [
        {"train": False},
        {"train": True},
        {"weight": 0.5},
        {"train": False, "weight": 2},
    ]
    record = {"messages": [{"role": "assistant", "content": "a", **more} for more in answers]}
    assert [message.weight for message in read_chat(record).messages] == [0.0, 1.0, 0.5, 0.0]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text("abc"), JSON_VALUES, max_size=4))
def test_arguments_as_a_string_or_as_an_object_render_the_same(arguments: dict[str, Any]) -> None:
    def call(value: object) -> ToolCall:
        entry = {"id": "1", "type": "function", "function": {"name": "f", "arguments": value}}
        record = {"messages": [{"role": "assistant", "content": None, "tool_calls": [entry]}]}
        return read_chat(record).messages[0].calls[0]

    shuffled = json.dumps(dict(reversed(arguments.items())), indent=2)
    assert call(arguments) == call(json.dumps(arguments)) == call(shuffled)
    assert json.loads(call(arguments).as_json()) == {"name": "f", "arguments": arguments}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.text("abc", min_size=1), JSON_VALUES, max_size=4), max_size=3))
def test_a_tool_schema_gains_no_key_and_no_null(tools: list[dict[str, Any]]) -> None:
    chat = read_chat({"messages": [{"role": "user", "content": "q"}], "tools": tools})
    assert [json.loads(tool) for tool in chat.tools] == tools


def test_a_call_without_arguments_gets_none() -> None:
    record = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "now"}}]}]}
    assert read_chat(record).messages[0].calls[0].as_json() == '{"name":"now"}'


def messages_with(bad: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, bad]}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "not a chat (expected an object, got a list)"),
        ({}, "no known shape of chat (expected one of the keys messages, conversations, "
             "instruction, prompt, got no keys); name the field that holds the chat with text_key"),
        ({"text": "q"}, "no known shape of chat (expected one of the keys messages, "
                        "conversations, instruction, prompt, got text); name the field that "
                        "holds the chat with text_key"),
        ({"messages": []}, "a chat without messages; leave the record out"),
        ({"messages": "q"}, "field 'messages': not a list of messages (expected a list, got a "
                            "string)"),
        (messages_with("a"), "message 2, field 'messages[1]': not a message (expected an object, "
                             "got a string)"),
        (messages_with({"role": "user"}), "message 2, field 'messages[1].content': not a string "
                                          "(expected a string, got null)"),
        (messages_with({"role": "user", "content": [{"type": "image"}]}),
         "message 2, field 'messages[1].content[0]': not a text part (expected a part of type "
         "text, got 'image')"),
        (messages_with({"role": "assistant", "content": "a", "weight": -1}),
         "message 2, field 'messages[1].weight': not a weight (expected a number from 0 up, "
         "got -1)"),
        (messages_with({"role": "assistant", "content": "a", "weight": True}),
         "message 2, field 'messages[1].weight': not a weight (expected a number from 0 up, "
         "got True)"),
        (messages_with({"role": "assistant", "content": "a", "weight": "1"}),
         "message 2, field 'messages[1].weight': not a weight (expected a number from 0 up, "
         "got '1')"),
        (messages_with({"role": "assistant", "content": "a", "train": 1}),
         "message 2, field 'messages[1].train': not a boolean (expected true or false, got a "
         "number)"),
        (messages_with({"role": "tool", "content": "a", "train": True}),
         "message 2, field 'messages[1]': a tool's result is never trained; leave out its train "
         "and weight fields"),
        (messages_with({"role": "user", "content": "a", "tool_calls": [{"name": "f"}]}),
         "message 2, field 'messages[1]': only an assistant calls tools (expected role "
         "assistant, got user)"),
        ({"instruction": "q"}, "no answer (expected the key output or response, got instruction)"),
        ({"prompt": "q", "chosen": "a"}, "no answer (expected the key completion or response, got "
                                         "prompt, chosen); build records of preferences with "
                                         "pairs=True"),
        ({"prompt": "q", "response": 4}, "field 'response': not a list of messages (expected a "
                                         "list, got a number)"),
        ({**messages_with({"role": "system", "content": "t"}), "system": "s"},
         "field 'system': the record has another system text already (expected one system text, "
         "got 's' and 't'); leave out one of them"),
        ({"prompt": "q", "completion": "a", "system": ["s"]}, "field 'system': not a string "
                                                              "(expected a string, got a list)"),
        ({"instruction": "q", "output": "a", "history": "h"},
         "field 'history': not a list of pairs (expected a list, got a string)"),
        ({"instruction": "q", "output": "a", "history": [["h"]]}, "field 'history[0]': not a pair "
         "(expected a list of a question and its answer, got 1 of them)"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_message_and_field(record: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_chat(record, PLACE)
    assert str(caught.value) == f"chats.jsonl:7: {message}"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "not valid JSON"),
        ('{"a":1,"a":2}', "the same key twice"),
        ('{"a":NaN}', "NaN is not JSON"),
        ({"a": float("inf")}, "cannot be written as JSON"),
        ('{"a":"\\ud800"}', "a lone surrogate"),
    ],
)
def test_arguments_that_are_not_json_are_refused(arguments: object, why: str) -> None:
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    record = messages_with({"role": "assistant", "tool_calls": calls})
    place = r"message 2, field 'messages\[1\]\.tool_calls\[0\]\.function\.arguments'"
    with pytest.raises(InputError, match=f"{place}: .*{why}"):
        read_chat(record, PLACE)


@pytest.mark.parametrize("role", ["", "robot", "<|im_start|>", None, 3, ["user"]])
def test_an_unknown_role_is_refused_and_never_rendered(role: object) -> None:
    with pytest.raises(InputError, match=r"field 'messages\[1\]\.role': no known role"):
        read_chat(messages_with({"role": role, "content": "a"}), PLACE)


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"lone surrogate at character 1 .*got U.D800"):
        read_chat(messages_with({"role": "user", "content": "a\ud800"}), PLACE)


def test_a_shape_that_was_asked_for_is_not_guessed() -> None:
    record = {"messages": [{"role": "user", "content": "q"}], "prompt": "p", "completion": "c"}
    assert read_chat(record, shape="prompt").messages[0].content == "p"
    with pytest.raises(ConfigError, match="no such shape of chat"):
        read_chat(record, shape="chatgpt")
