"""A piece of a chunk: one batch of documents or chats as arrays that lie end to end."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from tokenreel.builder.build_plan import BuildPlan
from tokenreel.builder.prompt_items import (
    PromptItem,
    prompt_value,
    read_prompt_item,
    record_arrays,
)
from tokenreel.builder.spill import HASH, Arrays
from tokenreel.errors import InputError
from tokenreel.store.narrow import narrow, narrow_ended
from tokenreel.store.origins import ORIGIN, UNKNOWN_STRING, OriginTable
from tokenreel.text.chats import Chat, ModelTemplate, Rendered, by_answer, read_chat, render
from tokenreel.text.chats.group_render import render_groups
from tokenreel.text.chats.messages import Message
from tokenreel.text.chats.preferences import (
    NOT_KEPT,
    SAME_ANSWERS,
    SOME_FIELD,
    Group,
    read_group,
)
from tokenreel.text.chats.prompt_render import render_prompts
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.jsonl_columns import Columns
from tokenreel.text.sources.record import Bad, Record, Skipped, Tally
from tokenreel.text.tokenizers import Encoded, Tokenizer
from tokenreel.text.tokenizers.checked_encoder import CheckedEncoder

MEMORY = "(memory)"  # what provenance calls a place without a file
# How much of a template's own words is in a reason, and how many reasons a chunk may have.
MAX_REASON_CHARACTERS = 120
MAX_REASONS = 20
MAX_NAME_CHARACTERS = 60  # of a field that is not kept
Item = TypeVar("Item", Chat, Group, PromptItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The arrays of a batch, as they go into a chunk, and what is counted of it.

    text_bytes: int64 [documents]; `files` are the names of their files, or the one name of all.
    """

    arrays: Arrays
    text_bytes: np.ndarray
    files: str | list[str]
    dirt: Tally = field(default_factory=Tally)

    def by_file(self) -> dict[str, tuple[int, int, int]]:
        """Return documents, bytes of text and tokens of each file, in order of appearance."""
        tokens = np.diff(self.arrays["offsets"])
        if isinstance(self.files, str):
            return {self.files: (len(tokens), int(self.text_bytes.sum()), int(tokens.sum()))}
        numbers = {name: number for number, name in enumerate(dict.fromkeys(self.files))}
        owner = np.array([numbers[name] for name in self.files], np.int64)
        counts = [
            np.bincount(owner, values, len(numbers)).astype(np.int64).tolist()
            for values in (None, self.text_bytes, tokens)
        ]
        return dict(zip(numbers, zip(*counts, strict=True), strict=True))


class PieceMaker:
    """Encode batches of records into pieces."""

    def __init__(self, plan: BuildPlan, tokenizer: Tokenizer, *, dtype: np.dtype) -> None:
        self._plan = plan
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._end_id = plan.end_id(tokenizer)
        self._encode = CheckedEncoder(tokenizer)

    def documents(self, batch: Sequence[Record]) -> Piece:
        """Encode documents."""
        texts = [_text(record) for record in batch]
        encoded = self._encode.texts(texts, place=lambda number: batch[number].provenance)
        arrays = self._document_arrays(encoded)
        arrays |= self._origins(batch)
        text_bytes = np.array([_num_bytes(text) for text in texts], np.int64)
        return Piece(arrays=arrays, text_bytes=text_bytes, files=_files(batch), dirt=_dirt(batch))

    def columns(self, columns: Columns) -> Piece:
        """Encode documents that are given side by side."""
        encoded = self._encode.utf8(columns.texts, place=columns.provenance)
        arrays = self._document_arrays(encoded)
        if self._plan.provenance:
            arrays["origins"], arrays["strings"] = column_origins(columns)
        text_bytes = np.array([len(text) for text in columns.texts], np.int64)
        return Piece(arrays=arrays, text_bytes=text_bytes, files=columns.file, dirt=columns.dirt)

    def objects(self, batch: Sequence[Record], *, on_bad: str, skipped: Skipped) -> Piece | None:
        """Encode records that are whole objects: chats, groups of answers or prompts."""
        make = self.groups if self._plan.pairs else self.chats
        make = self.prompts if self._plan.prompts else make
        return make(batch, on_bad=on_bad, skipped=skipped)

    def chats(self, batch: Sequence[Record], *, on_bad: str, skipped: Skipped) -> Piece | None:
        """Encode chats; those that cannot be used are counted as skipped if `on_bad` says so."""
        chats = by_answer(
            _read(read_chat, batch, on_bad, skipped, noun="chat"), policy=self._plan.policy
        )
        return self._piece(batch, chats, render, on_bad=on_bad, skipped=skipped)

    def groups(self, batch: Sequence[Record], *, on_bad: str, skipped: Skipped) -> Piece | None:
        """Encode groups of answers, each into one document; else as chats."""
        groups = _read(read_group, batch, on_bad, skipped, noun="pair")
        piece = self._piece(batch, groups, render_groups, on_bad=on_bad, skipped=skipped)
        if piece is not None:
            _note_groups(piece.dirt, groups)
        return piece

    def prompts(self, batch: Sequence[Record], *, on_bad: str, skipped: Skipped) -> Piece | None:
        """Encode prompts, with the rest of their records; else as chats."""
        key = self._plan.prompt_key
        read = partial(read_prompt_item, key=key, has_template=self._plan.is_chat)
        value_of = partial(prompt_value, key=key)
        items = _read(read, batch, on_bad, skipped, noun="prompt", value_of=value_of)
        return self._piece(batch, items, render_prompts, on_bad=on_bad, skipped=skipped)

    def _piece(
        self,
        batch: Sequence[Record],
        items: list[Item],
        render_items: Callable[..., Rendered],
        *,
        on_bad: str,
        skipped: Skipped,
    ) -> Piece | None:
        """Encode what was read of a batch; what cannot be rendered is taken out of `items`."""
        rendered = self._rendered(items, render_items, on_bad, skipped)
        if rendered is None:
            return None
        contents = [[said.content for said in _messages(item)] for item in items]
        first = items[0].provenance
        self._encode.texts(["\n".join(contents[0])], place=lambda number: first)
        ids = narrow(rendered.ids, self._dtype, limit=self._tokenizer.vocab_size)
        arrays: Arrays = {"ids": ids, "offsets": rendered.offsets}
        arrays |= {"turns": rendered.turns, "turn_offsets": rendered.turn_offsets}
        if self._plan.prompts:
            arrays |= record_arrays(items)
        arrays = self._with_hashes(arrays) | self._origins(items)
        text_bytes = np.array([sum(map(_num_bytes, texts)) for texts in contents], np.int64)
        dirt = _dirt(batch, {item.provenance for item in items})
        is_own = isinstance(self._plan.template, ModelTemplate)
        left_out = rendered.unrendered if is_own else [item.unrendered for item in items]
        for item, parts in zip(items, left_out, strict=True):
            for part in parts:
                dirt.note(part, item.provenance)
        return Piece(arrays=arrays, text_bytes=text_bytes, files=_files(items), dirt=dirt)

    def _rendered(
        self,
        items: list[Item],
        render_items: Callable[..., Rendered],
        on_bad: str,
        skipped: Skipped,
    ) -> Rendered | None:
        """Render chats or groups; those that cannot be rendered are taken out of the list."""
        if not items:
            return None
        settings = {
            "template": self._plan.template,
            "tokenizer": self._tokenizer,
            "policy": self._plan.policy,
        }
        try:
            return render_items(items, **settings)
        except InputError as error:
            if on_bad == "error" or error.where is None:
                raise
        good = []
        for item in items:
            try:
                render_items([item], **settings)
                good.append(item)
            except InputError as error:
                noun = "pair" if self._plan.pairs else "prompt" if self._plan.prompts else "chat"
                skipped.add(_bad(item.provenance, error, noun=noun, skipped=skipped))
        items[:] = good
        return render_items(items, **settings) if items else None

    def _document_arrays(self, encoded: Encoded) -> Arrays:
        limit, offsets = self._tokenizer.vocab_size, encoded.offsets
        if self._end_id is None:
            ids = narrow(encoded.ids, self._dtype, limit=limit)
        else:
            ids = narrow_ended(encoded.ids, offsets, self._dtype, limit=limit, end_id=self._end_id)
            offsets = offsets + np.arange(len(offsets))
        return self._with_hashes({"ids": ids, "offsets": offsets})

    def _with_hashes(self, arrays: Arrays) -> Arrays:
        if self._plan.deduplicate:
            arrays["hashes"] = _content_hashes(arrays, with_answers=self._plan.pairs)
        return arrays

    def _origins(self, batch: Sequence[Record | Chat | Group | PromptItem]) -> Arrays:
        if not self._plan.provenance:
            return {}
        records, strings = OriginTable().add([item.provenance for item in batch])
        return {"origins": records, "strings": np.frombuffer(strings, np.uint8)}


def column_origins(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the origins of documents that are given side by side, as records and strings."""
    records = np.empty(len(columns), ORIGIN)
    records["row"] = columns.rows
    records["byte"] = columns.starts
    records["file"] = 0
    records["id"] = UNKNOWN_STRING
    strings = [_spelled(columns.file)]
    if columns.ids:
        named = [number for number, name in enumerate(columns.ids) if name is not None]
        strings += [_spelled(columns.ids[number] or "") for number in named]
        records["id"][named] = np.cumsum([len(data) for data in strings[:-1]])
    return records, np.frombuffer(b"".join(strings), np.uint8)


def _spelled(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return struct.pack("<I", len(data)) + data


def _files(batch: Sequence[Record | Chat | Group | PromptItem]) -> list[str]:
    return [item.provenance.file or MEMORY for item in batch]


def _dirt(batch: Sequence[Record], used: Set[Provenance] | None = None) -> Tally:
    """Count the dirt of the records, or of those that are used."""
    tally = Tally()
    for record in batch:
        if record.dirt and (used is None or record.provenance in used):
            tally.note_dirt(record)
    return tally


def _note_groups(dirt: Tally, groups: Sequence[Group]) -> None:
    """Count groups with answers that are the same, and records with fields that are not kept."""
    for group in groups:
        if group.has_same_answers:
            dirt.note(SAME_ANSWERS, group.provenance)
        kinds = {f"the field {name[:MAX_NAME_CHARACTERS]}{NOT_KEPT}" for name in group.unkept}
        # Without their places: these are nearly all records, and would leave no room for others.
        for kind in (SOME_FIELD, *sorted(kinds)) if kinds else ():
            dirt.reasons[kind] = dirt.reasons.get(kind, 0) + 1


def _messages(item: Chat | Group | PromptItem) -> list[Message]:
    chats = item.answers if isinstance(item, Group) else (item,)
    return [message for chat in chats for message in chat.messages]


def _read(
    read: Callable[[object, Provenance], Item],
    batch: Sequence[Record],
    on_bad: str,
    skipped: Skipped,
    *,
    noun: str,
    value_of: Callable[[Record], object] | None = None,
) -> list[Item]:
    items = []
    for record in batch:
        value = (value_of or _value)(record)
        try:
            items.append(read(value, record.provenance))
        except InputError as error:
            if on_bad == "error":
                raise
            skipped.add(_bad(record.provenance, error, noun=noun, skipped=skipped))
    return items


def _bad(place: Provenance, error: InputError, *, noun: str, skipped: Skipped) -> Bad:
    """Return a record that is passed over; its reason is what is wrong, without where and which.

    A model's template says in its own words why it refuses a chat. They are kept, but not without
    end: it may put the words of the chat into them.
    """
    what = error.what
    if what.startswith(("message ", "field ")):
        what = what.partition(": ")[2]
    short, _, words = what.partition(":")
    reason = f"{noun}: {short}"
    if short.startswith("the template ") and words:
        told = f"{reason}: {' '.join(words.split())[:MAX_REASON_CHARACTERS]}"
        if told in skipped.reasons or len(skipped.reasons) < MAX_REASONS:
            reason = told
    return Bad(reason=reason, provenance=place, error=error)


def _text(record: Record) -> str:
    if record.text is None:
        raise InputError(
            "the source gives objects, not documents",
            where=str(record.provenance),
            remedy="build with chat=True, or name the field of the text (text_key)",
        )
    return record.text


def _value(record: Record) -> object:
    if record.value is None:
        raise InputError(
            "the source gives documents, not chats",
            where=str(record.provenance),
            remedy="leave out chat=True or pairs=True, or text_key",
        )
    return record.value


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _content_hashes(arrays: Arrays, *, with_answers: bool) -> np.ndarray:
    """Hash the ids of each document: equal text and structure, equal hash.

    `with_answers`: and where its answers begin, with their labels. The same answer may be
    desirable here and undesirable there.
    """
    data, borders = arrays["ids"].data, list(pairwise(arrays["offsets"].tolist()))
    hashers = [
        hashlib.blake2b(data[start:stop], digest_size=HASH.itemsize) for start, stop in borders
    ]
    if with_answers:
        turns = [arrays["turns"][name].astype("<i8") for name in ("start", "answer", "label")]
        told = np.ascontiguousarray(np.stack(turns, axis=1))
        for hasher, (first, last) in zip(
            hashers, pairwise(arrays["turn_offsets"].tolist()), strict=True
        ):
            hasher.update(told[first:last].data)
    if "records" in arrays:  # a prompt with another answer is another
        text, offsets = arrays["objects"].data, arrays["records"].tolist()
        for hasher, (first, last) in zip(hashers, pairwise(offsets), strict=True):
            hasher.update(text[first:last])
    return np.frombuffer(b"".join(hasher.digest() for hasher in hashers), HASH)
