"""Records of other people's files, read as chats.

    messages       OpenAI: role, content (text or text parts), name, tool_calls
    conversations  ShareGPT: from, value
    instruction    Alpaca and Dolly: instruction, input or context, output or response
    prompt         prompt and completion or response, each a text or a list of messages

Beside each of them `system` or `system_prompt` is the system turn, unless the messages have
one already; `history`, pairs of question and answer, goes before an instruction or a prompt.

The promise: a record becomes the same chat whatever its shape, or an InputError
that names file, line, message number (from 1) and field; nothing is guessed and
no missing key is filled in. `train` (boolean) and `weight` (number) of a message
are kept; a prompt's messages weigh 0 unless they say otherwise. A null stands
for a missing field of a message, but stays null inside arguments and schemas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.text.chats.messages import Chat, Message, Place, ToolCall, shorten, type_name
from tokenreel.text.provenance import Provenance

ROLE_NAMES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "tool_response": "tool",
    "function_response": "tool",
    "observation": "tool",
}

SYSTEM_KEYS = ("system", "system_prompt")
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")

UNKNOWN = Provenance()


def read_chat(
    record: object, provenance: Provenance = UNKNOWN, *, shape: str | None = None
) -> Chat:
    """Return the chat of one record; the shape is known by its keys unless it is given.

    >>> read_chat({"prompt": "2+2?", "completion": "4"}).messages[1].content
    '4'
    """
    place = Place(provenance=provenance)
    if not isinstance(record, Mapping):
        raise place.error("not a chat", expected="an object", actual=type_name(record))
    reader = _READERS[_shape_of(record, place) if shape is None else _checked(shape)]
    return _chat(reader(record, place), record, place)


def read_answer(
    record: Mapping, answer: object, *, prompt: object, field: str, provenance: Provenance = UNKNOWN
) -> Chat:
    """Return the chat of a prompt and one answer to it, each a text or a list of messages.

    `record` has what else belongs to the chat (system, history, tools), `field` names the answer
    in errors. What the prompt's messages say of their weight is not asked: they weigh 0.
    """
    place = Place(provenance=provenance)
    asked = _asked(record, prompt, place)
    answered = _side(answer, place.at(field), "assistant")
    if not any(message.role == "assistant" for message in answered):
        raise place.at(field).error(
            "an answer without a message of the assistant",
            expected="role assistant",
            actual=", ".join(message.role for message in answered) or "no messages",
        )
    return _chat([*(replace(item, weight=0.0) for item in asked), *answered], record, place)


def _chat(messages: Sequence[Message], record: Mapping, place: Place) -> Chat:
    if not messages:
        raise place.error("a chat without messages", remedy="leave the record out")
    tools = _tool_list(record, place)
    return Chat(
        messages=tuple(messages),
        tools=tuple(place.at(f"tools[{i}]").json(tool) for i, tool in enumerate(tools)),
        provenance=place.provenance,
        given=_for_templates(record, tools),
    )


def _shape_of(record: Mapping, place: Place) -> str:
    for key in _READERS:
        if record.get(key) is not None:
            return key
    raise place.error(
        "no known shape of chat",
        expected=f"one of the keys {', '.join(_READERS)}",
        actual=_keys(record),
        remedy="name the field that holds the chat with text_key",
    )


def _keys(record: Mapping) -> str:
    return ", ".join(map(str, record)) or "no keys"


def _checked(shape: str) -> str:
    if shape in _READERS:
        return shape
    raise ConfigError(
        "no such shape of chat", expected=f"one of {', '.join(_READERS)}", actual=repr(shape)
    )


def _read_messages(record: Mapping, place: Place) -> list[Message]:
    messages = _message_list(record.get("messages"), place.at("messages"))
    return _with_system(record, place, messages)


def _read_conversations(record: Mapping, place: Place) -> list[Message]:
    messages = _message_list(record.get("conversations"), place.at("conversations"))
    return _with_system(record, place, messages)


def _read_instruction(record: Mapping, place: Place) -> list[Message]:
    question = place.at("instruction").text(record.get("instruction"))
    field, more = _first_present(record, ("input", "context"))
    if more is not None and (more := place.at(field).text(more)).strip():
        question = f"{question}\n\n{more}"
    field, answer = _answer(record, place, ("output", "response"))
    messages = [
        *_history(record, place),
        Message(role="user", content=question),
        _plain("assistant", answer, place.at(field)),
    ]
    return _with_system(record, place, messages)


def _read_prompt(record: Mapping, place: Place) -> list[Message]:
    asked = _asked(record, record.get("prompt"), place)
    field, answer = _answer(record, place, ("completion", "response"))
    answered = _side(answer, place.at(field), "assistant")
    return [_untrained(message) for message in asked] + answered


_READERS: Mapping[str, Callable[[Mapping, Place], list[Message]]] = {
    "messages": _read_messages,
    "conversations": _read_conversations,
    "instruction": _read_instruction,
    "prompt": _read_prompt,
}


def _asked(record: Mapping, prompt: object, place: Place) -> list[Message]:
    """Return what comes before an answer: system text, history, prompt."""
    asked = _history(record, place) + _side(prompt, place.at("prompt"), "user")
    return _with_system(record, place, asked)


def _side(value: object, place: Place, role: str) -> list[Message]:
    return [_plain(role, value, place)] if isinstance(value, str) else _message_list(value, place)


def _untrained(message: Message) -> Message:
    return message if message.weight is not None else replace(message, weight=0.0)


def _with_system(record: Mapping, place: Place, messages: list[Message]) -> list[Message]:
    """Return the messages with the record's system text in front, if it has one."""
    for key in SYSTEM_KEYS:
        if record.get(key) in (None, ""):
            continue
        system = _plain("system", record[key], place.at(key))
        said = [message.content for message in messages if message.role == "system"]
        if not said:
            messages = [system, *messages]
        elif said != [system.content]:
            raise place.at(key).error(
                "the record has another system text already",
                expected="one system text",
                actual=f"{shorten(system.content)} and {shorten(said[0])}",
                remedy="leave out one of them",
            )
    return messages


def _history(record: Mapping, place: Place) -> list[Message]:
    """Return the turns of Alpaca's `history`: pairs of a question and its answer."""
    place, pairs = place.at("history"), record.get("history")
    if pairs is None:
        return []
    if not isinstance(pairs, (list, tuple)):
        raise place.error("not a list of pairs", expected="a list", actual=type_name(pairs))
    turns = []
    for number, pair in enumerate(pairs):
        at = place.at(f"[{number}]")
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise at.error(
                "not a pair",
                expected="a list of a question and its answer",
                actual=f"{len(pair)} of them"
                if isinstance(pair, (list, tuple))
                else type_name(pair),
            )
        turns += [_plain("user", pair[0], at), _plain("assistant", pair[1], at)]
    return turns


def _answer(record: Mapping, place: Place, keys: Sequence[str]) -> tuple[str, object]:
    field, answer = _first_present(record, keys)
    if answer is None:
        raise place.error(
            "no answer",
            expected=f"the key {' or '.join(keys)}",
            actual=_keys(record),
            remedy="build records of preferences with pairs=True"
            if "chosen" in record or "answers" in record
            else None,
        )
    return field, answer


def _plain(role: str, value: object, place: Place) -> Message:
    return Message(role=role, content=place.text(value))


def _first_present(record: Mapping, keys: Sequence[str]) -> tuple[str, object]:
    for key in keys:
        if record.get(key) is not None:
            return key, record[key]
    return keys[0], None


def _message_list(value: object, place: Place) -> list[Message]:
    if not isinstance(value, (list, tuple)):
        raise place.error("not a list of messages", expected="a list", actual=type_name(value))
    return [
        _common_message(entry) or _any_message(entry, place, number=number)
        for number, entry in enumerate(value)
    ]


def _common_message(entry: object) -> Message | None:
    """Return the message of two strings and nothing else, which takes no detour."""
    if type(entry) is not dict or len(entry) != 2:
        return None
    role, content = entry.get("role"), entry.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        return None
    if ROLE_NAMES.get(role) != role or not content.isascii():
        return None
    return Message(role=role, content=content)


def _any_message(entry: object, place: Place, *, number: int) -> Message:
    place = Place(provenance=place.provenance, message=number + 1, field=f"{place.field}[{number}]")
    if not isinstance(entry, Mapping):
        raise place.error("not a message", expected="an object", actual=type_name(entry))
    return _full_message(entry, place)


def _full_message(entry: Mapping, place: Place) -> Message:
    role_key = "role" if "role" in entry or "from" not in entry else "from"
    said = entry.get(role_key)
    role = ROLE_NAMES.get(said) if isinstance(said, str) else None
    if role is None:
        raise place.at(role_key).error(
            "no known role", expected=f"one of {', '.join(ROLE_NAMES)}", actual=repr(said)
        )
    calls = _calls(entry, place)
    content_key = "content" if "content" in entry or "value" not in entry else "value"
    content = entry.get(content_key)
    if said == "function_call":
        calls, content = (*calls, _function_call(content, place.at(content_key))), ""
    if calls and role != "assistant":
        raise place.error("only an assistant calls tools", expected="role assistant", actual=role)
    name = entry.get("name")
    return Message(
        role=role,
        content="" if content is None and calls else _content(content, place.at(content_key)),
        name=None if name is None else place.at("name").text(name),
        calls=calls,
        weight=_weight(entry, place, role),
        reasoning=_reasoning(entry, place),
        given=entry,
    )


def _reasoning(entry: Mapping, place: Place) -> str | None:
    key, value = _first_present(entry, REASONING_KEYS)
    return None if value is None else place.at(key).text(value) or None


def _content(value: object, place: Place) -> str:
    if not isinstance(value, (list, tuple)):
        return place.text(value)
    return "".join(_part(part, place.at(f"[{number}]")) for number, part in enumerate(value))


def _part(part: object, place: Place) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text":
        return place.at("text").text(part.get("text"))
    kind = part.get("type") if isinstance(part, Mapping) else type_name(part)
    raise place.error("not a text part", expected="a part of type text", actual=repr(kind))


def _weight(entry: Mapping, place: Place, role: str) -> float | None:
    train, weight = entry.get("train"), entry.get("weight")
    if train is not None and not isinstance(train, bool):
        raise place.at("train").error(
            "not a boolean", expected="true or false", actual=type_name(train)
        )
    if weight is not None and not _is_weight(weight):
        raise place.at("weight").error(
            "not a weight", expected="a number from 0 up", actual=repr(weight)
        )
    if train is None and weight is None:
        return None
    value = 0.0 if train is False else 1.0 if weight is None else float(weight)
    if role == "tool" and value > 0:
        raise place.error(
            "a tool's result is never trained", remedy="leave out its train and weight fields"
        )
    return value


def _is_weight(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # The turn table keeps weights as float32.
    return math.isfinite(value) and 0 <= value <= 3.4e38


def _calls(entry: Mapping, place: Place) -> tuple[ToolCall, ...]:
    listed = entry.get("tool_calls")
    if listed is None:
        return ()
    if not isinstance(listed, (list, tuple)):
        raise place.at("tool_calls").error(
            "not a list of calls", expected="a list", actual=type_name(listed)
        )
    return tuple(_call(call, place.at(f"tool_calls[{i}]")) for i, call in enumerate(listed))


def _call(call: object, place: Place) -> ToolCall:
    if not isinstance(call, Mapping):
        raise place.error("not a tool call", expected="an object", actual=type_name(call))
    function = call.get("function", call)
    inner = place.at("function") if "function" in call else place
    if not isinstance(function, Mapping):
        raise inner.error("not a function", expected="an object", actual=type_name(function))
    name = inner.at("name").text(function.get("name"))
    if "arguments" not in function:
        return ToolCall(name=name)
    return ToolCall(name=name, arguments=inner.at("arguments").json(function["arguments"]))


def _function_call(value: object, place: Place) -> ToolCall:
    return _call(place.parsed(value) if isinstance(value, str) else value, place)


def _tool_list(record: Mapping, place: Place) -> Sequence[object]:
    tools = record.get("tools")
    if tools is None:
        return ()
    tools = place.at("tools").parsed(tools) if isinstance(tools, str) else tools
    if not isinstance(tools, (list, tuple)):
        raise place.at("tools").error("not a list", expected="a list", actual=type_name(tools))
    return tools


def _for_templates(record: Mapping, tools: Sequence[object]) -> Mapping[str, Any]:
    """Return what a model's own template sees beside the messages; see `Chat.given`."""
    given: dict[str, Any] = {"tools": list(tools)} if tools else {}
    for key, kind in (("documents", list), ("chat_template_kwargs", dict)):
        if isinstance(record.get(key), kind) and record[key]:
            given[key] = record[key]
    return given
