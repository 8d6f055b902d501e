"""A piece of a chunk: one batch of documents or chats as arrays that lie end to end."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tokenreel.builder.build_plan import BuildPlan
from tokenreel.builder.spill import HASH, Arrays
from tokenreel.errors import InputError
from tokenreel.store.narrow import narrow, narrow_ended
from tokenreel.store.origins import ORIGIN, UNKNOWN_STRING, OriginTable
from tokenreel.text.chats import Chat, ModelTemplate, Rendered, by_answer, read_chat, render
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.jsonl_columns import Columns
from tokenreel.text.sources.record import Bad, Record, Skipped, Tally
from tokenreel.text.tokenizers import Encoded, Tokenizer
from tokenreel.text.tokenizers.checked_encoder import CheckedEncoder

MEMORY = "(memory)"  # what provenance calls a place without a file


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

    def chats(self, batch: Sequence[Record], *, on_bad: str, skipped: Skipped) -> Piece | None:
        """Encode chats; those that cannot be used are counted as skipped if `on_bad` says so."""
        chats = by_answer(_read_chats(batch, on_bad, skipped), policy=self._plan.policy)
        rendered = self._rendered(chats, on_bad, skipped)
        if rendered is None:
            return None
        contents = [[message.content for message in chat.messages] for chat in chats]
        first = chats[0].provenance
        self._encode.texts(["\n".join(contents[0])], place=lambda number: first)
        ids = narrow(rendered.ids, self._dtype, limit=self._tokenizer.vocab_size)
        arrays = self._with_hashes({"ids": ids, "offsets": rendered.offsets})
        arrays |= {"turns": rendered.turns, "turn_offsets": rendered.turn_offsets}
        arrays |= self._origins(chats)
        text_bytes = np.array([sum(map(_num_bytes, texts)) for texts in contents], np.int64)
        dirt = _dirt(batch, {chat.provenance for chat in chats})
        is_own = isinstance(self._plan.template, ModelTemplate)
        left_out = rendered.unrendered if is_own else [chat.unrendered for chat in chats]
        for chat, parts in zip(chats, left_out, strict=True):
            for part in parts:
                dirt.note(part, chat.provenance)
        return Piece(arrays=arrays, text_bytes=text_bytes, files=_files(chats), dirt=dirt)

    def _rendered(self, chats: list[Chat], on_bad: str, skipped: Skipped) -> Rendered | None:
        """Render the chats; those that cannot be rendered are taken out of the list."""
        if not chats:
            return None
        try:
            return self._render(chats)
        except InputError as error:
            if on_bad == "error" or error.where is None:
                raise
        good = []
        for chat in chats:
            try:
                self._render([chat])
                good.append(chat)
            except InputError as error:
                skipped.add(_bad_chat(chat.provenance, error))
        chats[:] = good
        return self._render(chats) if chats else None

    def _render(self, chats: Sequence[Chat]) -> Rendered:
        if self._plan.template is None:
            raise AssertionError("a chat build has a template")
        return render(
            chats, self._plan.template, tokenizer=self._tokenizer, policy=self._plan.policy
        )

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
            arrays["hashes"] = _content_hashes(arrays["ids"], arrays["offsets"])
        return arrays

    def _origins(self, batch: Sequence[Record] | Sequence[Chat]) -> Arrays:
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


def _files(batch: Sequence[Record] | Sequence[Chat]) -> list[str]:
    return [item.provenance.file or MEMORY for item in batch]


def _dirt(batch: Sequence[Record], used: Set[Provenance] | None = None) -> Tally:
    """Count the dirt of the records, or of those that are used."""
    tally = Tally()
    for record in batch:
        if record.dirt and (used is None or record.provenance in used):
            tally.note_dirt(record)
    return tally


def _read_chats(batch: Sequence[Record], on_bad: str, skipped: Skipped) -> list[Chat]:
    chats = []
    for record in batch:
        value = _value(record)
        try:
            chats.append(read_chat(value, record.provenance))
        except InputError as error:
            if on_bad == "error":
                raise
            skipped.add(_bad_chat(record.provenance, error))
    return chats


def _bad_chat(place: Provenance, error: InputError) -> Bad:
    """Return a chat that is passed over; its reason is what is wrong, without where and which."""
    what = error.what
    if what.startswith(("message ", "field ")):
        what = what.partition(": ")[2]
    return Bad(reason=f"chat: {what.partition(':')[0]}", provenance=place, error=error)


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
            remedy="leave out chat=True, or text_key",
        )
    return record.value


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _content_hashes(ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Hash the ids of each document: equal text and structure, equal hash."""
    data = ids.data
    hashes = [
        hashlib.blake2b(data[start:stop], digest_size=HASH.itemsize).digest()
        for start, stop in pairwise(offsets.tolist())
    ]
    return np.frombuffer(b"".join(hashes), HASH)
