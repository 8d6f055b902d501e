"""Records of a build of prompts: the prompt, and the rest of its record as it will be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenreel.builder.spill import Arrays
from tokenreel.errors import InputError
from tokenreel.store.document_records import Records, record_json
from tokenreel.text.chats.prompt_shapes import PROMPT_KEYS, Prompt, read_prompt
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptItem(Prompt):
    """A prompt with the rest of its record as JSON."""

    record: bytes


def prompt_value(record: Record, key: str | None) -> object:
    """Return the object that a record is; a bare text is a prompt without anything beside it."""
    return {key or PROMPT_KEYS[0]: record.text} if record.value is None else record.value


def read_prompt_item(
    value: object, place: Provenance, *, key: str | None, has_template: bool
) -> PromptItem:
    """Return the prompt of a record, or raise InputError; also where JSON cannot say the rest."""
    prompt = read_prompt(value, place, key=key, has_template=has_template)
    try:
        record = record_json(prompt.rest)
    except InputError as error:
        raise InputError(
            error.what,
            where=str(place),
            expected=error.expected,
            actual=error.actual,
            remedy=error.remedy,
        ) from None
    return PromptItem(chat=prompt.chat, rest=prompt.rest, record=record)


def record_arrays(items: Sequence[object]) -> Arrays:
    """Return the records of prompts as they go into a chunk."""
    records = Records.of_json([item.record for item in items if isinstance(item, PromptItem)])
    return {"objects": records.text, "records": records.offsets}
