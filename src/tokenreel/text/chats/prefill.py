"""A prompt that ends with the beginning of an answer, which the model is to go on with.

transformers calls it `continue_final_message`, servers a prefill. A model's template closes every
message, so the place where the answer goes on is found as transformers finds it: the last message
is rendered with a tag behind its text, and the output is cut where the tag stands. A template that
strips the text has stripped the blank at the end of the tag, and the blanks before it go too.

A beginning that spells a control token is refused: text is never one, so `<think>` here would not
be the token that the model writes. A template says such things itself, by its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenreel.errors import InputError
from tokenreel.text.chats.messages import Message, Place, shorten

if TYPE_CHECKING:
    from tokenreel.text.chats.jinja_given import Conversation
    from tokenreel.text.chats.jinja_script import Output

TAG = "TOKENREEL-GOES-ON-HERE "


def check_prefill(message: Message, place: Place, *, controls: Iterable[str]) -> None:
    """Raise InputError unless the last message of a prompt is a text that can be gone on with."""
    if message.calls:
        raise place.at("tool_calls").error(
            "a prompt that ends with a tool call, which is not gone on with",
            expected="a last message with a text, or the result of the tool behind it",
        )
    spelled = next((control for control in controls if control in message.content), None)
    if spelled is not None or TAG.strip() in message.content:
        raise place.at("content").error(
            "a prompt that ends with the beginning of an answer, and spells a control token in it",
            expected="text alone: no text becomes a control token",
            actual=shorten(spelled or TAG),
            remedy="leave it out, or let the template write it",
        )


def with_tag(conversation: Conversation) -> Conversation:
    """Return a conversation with the tag behind the text of its last message."""
    *before, last = conversation.messages
    content = last.get("content")
    tagged: Any = TAG
    if isinstance(content, str):
        tagged = content + TAG
    elif content:  # parts, each of which is a text
        tagged = [*content[:-1], {**content[-1], "text": content[-1]["text"] + TAG}]
    return replace(conversation, messages=[*before, {**last, "content": tagged}])


def cut_at_tag(output: Output) -> Output:
    """Return an output up to the tag; InputError unless it stands there once."""
    tag = TAG.strip()
    if output.text.count(tag) != 1:
        raise InputError(
            "the template does not write the last message as it is, so it cannot be gone on with",
            expected="a template that writes the text of an answer once, to its end",
            remedy="leave the last message out",
        )
    stop = output.text.index(tag)
    text = output.text[:stop]
    if not output.text.startswith(TAG, stop):
        text = text.rstrip()
    controls = tuple(control for control in output.controls if control[1] <= len(text))
    return replace(output, text=text, controls=controls)
