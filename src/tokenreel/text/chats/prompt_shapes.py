"""Records of other people's files, read as prompts: what is asked, and all else they say.

    prompt      a text, or a list of messages (TRL's prompt-only records)
    messages    a list of messages
    text        a text

or the field that text_key names, as "question". With a chat template `system`, `system_prompt`
and `tools` beside it belong to the prompt as well, and a text is what the user says. What is left
of the record is kept with the prompt as it is: answers, arguments of a verifier.

Nothing of a prompt is trained, whatever `train` and `weight` of its messages say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenreel.text.chats.messages import Chat, Message, Place, type_name
from tokenreel.text.chats.shapes import SYSTEM_KEYS, read_chat
from tokenreel.text.provenance import Provenance

PROMPT_KEYS = ("prompt", "messages", "text")
BESIDE = (*SYSTEM_KEYS, "tools", "documents", "chat_template_kwargs")  # what a template may render
UNKNOWN = Provenance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as a chat that waits for an answer, and the rest of its record."""

    chat: Chat
    rest: Mapping[str, Any]

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said so far."""
        return self.chat.messages

    @property
    def provenance(self) -> Provenance:
        """Where the record was read."""
        return self.chat.provenance

    @property
    def unrendered(self) -> tuple[str, ...]:
        """What the prompt has that no template renders, for the account of a build."""
        return self.chat.unrendered


def read_prompt(
    record: object,
    provenance: Provenance = UNKNOWN,
    *,
    key: str | None = None,
    has_template: bool = True,
) -> Prompt:
    """Return the prompt of one record, in the field `key` or in one of PROMPT_KEYS.

    >>> prompt = read_prompt({"question": "2+2?", "answer": "4"}, key="question")
    >>> prompt.messages[0].content, prompt.rest
    ('2+2?', {'answer': '4'})
    """
    place = Place(provenance=provenance)
    if not isinstance(record, Mapping):
        raise place.error("not a prompt", expected="an object", actual=type_name(record))
    name = _key_of(record, key, place)
    value, beside = record[name], {}
    if has_template:
        beside = {other: record[other] for other in BESIDE if other in record and other != name}
    chat = _chat(value, beside, place.at(name), has_template=has_template)
    rest = {other: record[other] for other in record if other != name and other not in beside}
    untrained = tuple(replace(message, weight=0.0) for message in chat.messages)
    return Prompt(chat=replace(chat, messages=untrained), rest=rest)


def _key_of(record: Mapping[str, Any], key: str | None, place: Place) -> str:
    keys = PROMPT_KEYS if key is None else (key,)
    found = next((name for name in keys if record.get(name) is not None), None)
    if found is None:
        raise place.error(
            "no prompt",
            expected=f"the key {' or '.join(map(repr, keys))}",
            actual=", ".join(map(str, list(record)[:20])) or "no keys",
            remedy="name the field that holds the prompt with text_key",
        )
    return found


def _chat(value: object, beside: Mapping[str, Any], place: Place, *, has_template: bool) -> Chat:
    if isinstance(value, str):
        if not place.text(value).strip():
            raise place.error("an empty prompt", remedy="leave the record out")
        said: list[object] = [{"role": "user", "content": value}]
    elif isinstance(value, (list, tuple)):
        if not value:
            raise place.error("an empty prompt", remedy="leave the record out")
        if not has_template:
            raise place.error(
                "a prompt of messages needs a chat template",
                remedy="pass chat=True for the one that fits the tokenizer, or template=…",
            )
        said = list(value)
    else:
        raise place.error(
            "not a prompt", expected="a text or a list of messages", actual=type_name(value)
        )
    return read_chat({**beside, "messages": said}, place.provenance, shape="messages")
