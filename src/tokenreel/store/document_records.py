"""What else is known of each document, as JSON: the answer to a prompt, a verifier's arguments.

    .records   offsets u64 [documents + 1] into the other
    .objects   canonical JSON, one object per document, end to end

Tokens are the prompt; the record is the rest, which no model reads and a reward needs. Two files,
so that both are written as documents arrive: offsets in front of the text would be known at the
end of the shard alone.
`Records` are such objects on their way: two arrays, which become objects only where somebody
looks (some 3 µs each). A document has at most 1 MiB of it: what is larger belongs into a file of
its own, whose name the record can hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from tokenreel.canonical import canonical_json
from tokenreel.errors import DamageError, InputError

OFFSET = np.dtype("<u8")
MAX_RECORD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records(Sequence[dict[str, Any]]):
    """The records of some documents: that of document i is `text[offsets[i]:offsets[i + 1]]`.

    text: uint8, JSON as UTF-8; offsets: integers [n + 1], which need not begin with 0. An empty
    text is the record of a document that has none, and reads as {}.

    >>> records = Records.of([{"answer": 4}, {}, {"b": [1.5, None], "a": "é"}])
    >>> records[2], records.take(np.array([2, 0]))[1], len(records[1:])
    ({'a': 'é', 'b': [1.5, None]}, {'answer': 4}, 2)
    """

    text: np.ndarray
    offsets: np.ndarray
    where: Path = Path("records")

    @staticmethod
    def of(values: Iterable[Mapping[str, Any] | None]) -> Records:
        """Return the records of these objects; InputError for one that JSON cannot say."""
        return Records.of_json([b"" if value is None else record_json(value) for value in values])

    @staticmethod
    def of_json(texts: Sequence[bytes]) -> Records:
        """Return the records that `record_json` spelled."""
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return Records(text=np.frombuffer(b"".join(texts), np.uint8), offsets=offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, number: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, number: slice) -> Records: ...
    def __getitem__(self, number: int | slice) -> dict[str, Any] | Records:
        if isinstance(number, slice):
            start, stop, _ = number.indices(len(self))
            return Records(text=self.text, offsets=self.offsets[start : stop + 1], where=self.where)
        return parse_record_json(self.spelled(number), where=self.where, number=number)

    def spelled(self, number: int) -> bytes:
        """Return the JSON of one record as it is stored."""
        if not 0 <= number < len(self):
            raise IndexError(f"{self.where}: no record {number:,} of {len(self):,}")
        return self.text[int(self.offsets[number]) : int(self.offsets[number + 1])].tobytes()

    def take(self, order: np.ndarray) -> Records:
        """Return copies of the records with these numbers, in this order."""
        return Records.of_json([self.spelled(number) for number in order.tolist()])

    @staticmethod
    def join(parts: Sequence[Records]) -> Records:
        """Return the records of all parts, end to end."""
        texts = [part.text[int(part.offsets[0]) : int(part.offsets[-1])] for part in parts]
        lengths = np.concatenate([np.diff(part.offsets.astype(np.int64)) for part in parts])
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return Records(text=np.concatenate(texts), offsets=offsets)


def check_records(offsets: np.ndarray, *, num_bytes: int, where: Path) -> None:
    """Raise DamageError unless the offsets of a shard's records cover its objects in order."""
    wrong = np.append(offsets[1:] < offsets[:-1], offsets[-1] != num_bytes)
    wrong[0] |= offsets[0] != 0
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DamageError(
            f"offset {at:,} of the records is not in order or not inside the objects",
            where=where,
            expected=f"0 to {num_bytes:,}, never decreasing",
            actual=int(offsets[at]),
            remedy="restore the file or build the store again",
        )


def record_json(value: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of a record, or raise InputError.

    >>> record_json({"b": (1, 2), "a": None})
    b'{"a":null,"b":[1,2]}'
    """
    if not isinstance(value, Mapping):
        raise InputError(
            "the record of a document is not an object",
            expected="an object with keys",
            actual=type(value).__name__,
        )
    for name, item in value.items():
        _refuse_foreign(name, item)
    try:
        text = canonical_json(dict(value)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the record of a document cannot be written as JSON: {error or 'too deep'}"
        ) from error
    if len(text) > MAX_RECORD_BYTES:
        largest = max(value, key=lambda name: len(canonical_json(value[name])))
        raise InputError(
            "the record of a document is too large",
            expected=f"at most {MAX_RECORD_BYTES:,} bytes of JSON",
            actual=f"{len(text):,}, most of them in {largest!r}",
            remedy="leave the field out, or keep it in a file and its name in the record",
        )
    return text


def _refuse_foreign(name: object, item: object) -> None:
    """Raise InputError, with the name of the field, for what JSON has no words for."""
    if not isinstance(name, str):
        raise InputError(
            "a key of a document's record is not a string",
            expected="a string",
            actual=f"{name!r}, {type(name).__name__}",
        )
    try:
        canonical_json(item).encode()
        key = _foreign_key(item)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"field {name!r} cannot be written as JSON: {error or 'it is nested too deeply'}",
            expected="texts, finite numbers, true, false, null, lists and objects of them",
            remedy="write it as a text or a number, or leave it out",
        ) from error
    if key is not None:
        raise InputError(
            f"field {name!r} has a key that is not a string", expected="a string", actual=repr(key)
        )


def _foreign_key(item: object) -> object | None:
    """Return a key, at any depth, that JSON would turn into a string in silence; else None."""
    waiting = [item]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Mapping):
            foreign = [key for key in inner if not isinstance(key, str)]
            if foreign:
                return foreign[0] if foreign[0] is not None else "null"
            waiting.extend(inner.values())
        elif isinstance(inner, (list, tuple)):
            waiting.extend(inner)
    return None


def parse_record_json(data: bytes, *, where: Path, number: int) -> dict[str, Any]:
    """Return the object that a record spells; DamageError if it spells none."""
    if not data:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        value = error
    if not isinstance(value, dict):
        raise DamageError(
            f"the record of document {number:,} of the shard is no JSON object",
            where=where,
            actual=repr(data[:40]),
            remedy='run "tokenreel verify"',
        )
    return value
