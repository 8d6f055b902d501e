"""A chat as a model's template sees it, and what of it the template leaves out.

Messages go to the template as their records have them: reasoning, tool calls with arguments as
an object or as text, names, parts of content, whatever else there is. Four things are changed:
- roles are those of GLOSSARY (`human` is `user`); `developer` stays, since templates know it;
- a null field is a missing one, but for `content`, which templates ask to be null in calls;
- reasoning goes by all its names (`reasoning_content`, `thinking`), as in transformers;
- `train` and `weight` are ours and stay here.

Arguments of calls are given as they are, object or JSON text. A template that would write the
text as a string in quotes, escaped, or that fails on the one, gets the other, as it would from a
server (`with_other_arguments`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenreel.text.chats.jinja_given import Conversation
from tokenreel.text.chats.messages import Chat, Message
from tokenreel.text.chats.shapes import REASONING_KEYS

_USUAL = {"role", "content"}
_OURS = ("train", "weight", "from", "value", "role")
# Shorter texts are found in an output by chance.
SURE_CHARACTERS = 12


def conversation_of(chat: Chat) -> Conversation:
    """Return what a template is given of a chat."""
    given = chat.given
    tools = given.get("tools")
    if tools is None and chat.tools:
        tools = [json.loads(tool) for tool in chat.tools]
    return Conversation(
        messages=[_seen(message) for message in chat.messages],
        tools=tools,
        documents=given.get("documents"),
        args=given.get("chat_template_kwargs", {}),
    )


def _seen(message: Message) -> Mapping[str, Any]:
    given = message.given
    if given is None:
        return _of_parts(message)
    if given.get("role", given.get("from")) == "function_call":
        return _of_parts(message)
    said = given.get("role")
    seen: dict[str, Any] = {"role": said if said == "developer" else message.role}
    if "content" not in given and "value" in given:
        seen["content"] = message.content
    for key, value in given.items():
        if key not in _OURS and (value is not None or key == "content"):
            seen[key] = value
    return _with_reasoning(seen, message)


def _of_parts(message: Message) -> Mapping[str, Any]:
    seen: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        seen["name"] = message.name
    if message.calls:
        seen["tool_calls"] = [
            {"type": "function", "function": _function(call.name, call.arguments)}
            for call in message.calls
        ]
    return _with_reasoning(seen, message)


def _with_reasoning(seen: dict[str, Any], message: Message) -> dict[str, Any]:
    if message.reasoning is None and seen.keys() == _USUAL:
        return seen
    # An empty reasoning is one: templates write its tags. `message.reasoning` is None for it.
    reasoning = next((seen[k] for k in REASONING_KEYS if k in seen), message.reasoning)
    if reasoning is not None:
        seen.setdefault("thinking", reasoning)
        seen["reasoning_content"] = reasoning
    return seen


def _function(name: str, arguments: str | None) -> dict[str, Any]:
    return {"name": name} | ({} if arguments is None else {"arguments": json.loads(arguments)})


def quoted_arguments(conversation: Conversation, text: str) -> bool:
    """Tell whether arguments that are JSON text stand in an output as a string in quotes."""
    return any(
        json.dumps(arguments, ensure_ascii=is_ascii) in text
        for arguments in _argument_texts(conversation.messages)
        for is_ascii in (False, True)
    )


def _argument_texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        for call in message.get("tool_calls") or ():
            arguments = _called(call).get("arguments")
            if isinstance(arguments, str):
                yield arguments


def _called(call: Any) -> Mapping[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    return function if isinstance(function, Mapping) else {}


def with_other_arguments(conversation: Conversation) -> Conversation | None:
    """Return the conversation with arguments that are JSON text as objects, or the other way.

    None if it has no calls with arguments.
    """
    has_texts = any(True for _ in _argument_texts(conversation.messages))
    if not has_texts and not any(
        "arguments" in _called(call)
        for message in conversation.messages
        for call in message.get("tool_calls") or ()
    ):
        return None
    convert = _read if has_texts else _written
    return replace(
        conversation, messages=[_converted(message, convert) for message in conversation.messages]
    )


def _read(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _written(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _converted(message: Mapping[str, Any], convert: Callable[[Any], Any]) -> Mapping[str, Any]:
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(_called(call))
        if "arguments" in function:
            function["arguments"] = convert(function["arguments"])
        calls.append({**call, "function": function} if "function" in call else function)
    return {**message, "tool_calls": calls}


def parts_to_find(conversation: Conversation) -> Iterator[tuple[str, str, str]]:
    """Yield what a template may leave out: its name, where it is, and a text that shows it.

    The name is that of the field; the place is the role of the message, or "" for the chat.
    """
    for message in conversation.messages:
        if len(message) == 2:  # role and content
            continue
        role = str(message.get("role"))
        if isinstance(message.get("reasoning_content"), str):
            yield "reasoning_content", role, message["reasoning_content"].strip()
        if isinstance(message.get("name"), str):
            yield "name", role, message["name"]
        for call in message.get("tool_calls") or ():
            function = _called(call)
            given = function.get("arguments")
            said = given if isinstance(given, str) else _written(given)
            yield "tool_calls", role, _longer(function.get("name", ""), said)
    for tool in conversation.tools or ():
        function = _called(tool)
        yield "tools", "", _longer(function.get("name", ""), function.get("description"))
    for document in conversation.documents or ():
        if isinstance(document, Mapping):
            yield "documents", "", str(next(iter(document.values()), "")).strip()


def _longer(name: Any, other: Any) -> str:
    """Return a name, or another text if only that one is too long to be somewhere by chance."""
    is_better = isinstance(other, str) and len(str(name)) < SURE_CHARACTERS <= len(other)
    return str(other if is_better else name)


def without(conversation: Conversation, field: str, role: str) -> Conversation:
    """Return the conversation without a field of its messages of a role, or of its own."""
    names = ("reasoning_content", "thinking") if field == "reasoning_content" else (field,)
    if field == "tools":
        return replace(conversation, tools=None)
    if field == "documents":
        return replace(conversation, documents=None)
    messages = [
        {key: value for key, value in message.items() if key not in names}
        if message.get("role") == role
        else message
        for message in conversation.messages
    ]
    return replace(conversation, messages=messages)
