"""What else is known of each document, as JSON: the answer to a prompt, a verifier's arguments.

    .records   offsets u64 [documents + 1] into the other
    .objects   JSON in one spelling, one object per document, end to end

Tokens are the prompt; the record is the rest, which no model reads and a reward needs. It is given
back as it came: types of JSON, integers of any size, the order of keys. The spelling is that of
canonical.py, with keys in the order of the record instead of sorted. Two files, so that both are
written as documents arrive: offsets in front of the text would be known at the end of the shard
alone.
`Records` are such objects on their way: two arrays, which become objects only where somebody
looks (some 3 µs each). A document has at most 1 MiB of it, nested 256 deep: what is larger belongs
into a file of its own, whose name the record can hold; what is deeper could be written here and
not be read where the stack of calls is deep already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from tokenreel.errors import DamageError, InputError

OFFSET = np.dtype("<u8")
MAX_RECORD_BYTES = 1 << 20
MAX_RECORD_DEPTH = 256  # of objects and lists in each other; Python's json gives up at about 990


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records(Sequence[dict[str, Any]]):
    """The records of some documents: that of document i is `text[offsets[i]:offsets[i + 1]]`.

    text: uint8, JSON as UTF-8; offsets: integers [n + 1], which need not begin with 0. An empty
    text is the record of a document that has none, and reads as {}.

    >>> records = Records.of([{"answer": 4}, {}, {"b": [1.5, None], "a": "é"}])
    >>> records[2], records.take(np.array([2, 0]))[1], len(records[1:])
    ({'b': [1.5, None], 'a': 'é'}, {'answer': 4}, 2)
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
            start, stop, step = number.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            stop = max(start, stop)
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
    """Return the JSON of a record in its one spelling, or raise InputError.

    >>> record_json({"b": (1, 2), "a": None})
    b'{"b":[1,2],"a":null}'
    """
    if not isinstance(value, Mapping):
        raise InputError(
            "the record of a document is not an object",
            expected="an object with keys",
            actual=type(value).__name__,
        )
    try:
        text = _spell(dict(value))
    except (TypeError, ValueError, RecursionError):
        text = b"{%s}" % b",".join(_spell_field(name, item) for name, item in value.items())
    if len(text) > MAX_RECORD_BYTES:
        largest = max(value, key=lambda name: len(_spell(value[name])))
        raise InputError(
            "the record of a document is too large",
            expected=f"at most {MAX_RECORD_BYTES:,} bytes of JSON",
            actual=f"{len(text):,}, most of them in {largest!r}",
            remedy="leave the field out, or keep it in a file and its name in the record",
        )
    _check_keys_and_depth(value)
    return text


def _spell(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()  # a lone surrogate is a ValueError too


def _spell_field(name: object, item: object) -> bytes:
    """Return the JSON of a field, or raise InputError with its name for what JSON cannot say."""
    try:
        return b"%s:%s" % (_spell(str(name)), _spell(item))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"field {name!r} cannot be written as JSON: {error or 'it is nested too deeply'}",
            expected="texts, finite numbers, true, false, null, lists and objects of them",
            remedy="write it as a text or a number, or leave it out",
        ) from error


def _check_keys_and_depth(record: Mapping[str, Any]) -> None:
    """Raise InputError for keys that JSON would turn into strings in silence, and for depth."""
    # The objects and lists of one depth, each with the field of the record that it is in.
    level: list[tuple[str | None, Any]] = [(None, record)]
    for _ in range(MAX_RECORD_DEPTH):
        inner: list[tuple[str | None, Any]] = []
        for field, item in level:
            if isinstance(item, Mapping):
                foreign = next((key for key in item if not isinstance(key, str)), item)
                if foreign is not item:
                    raise _foreign_key(foreign, field)
                below = [(key if field is None else field, value) for key, value in item.items()]
            else:
                below = [(field, value) for value in item]
            inner += [entry for entry in below if isinstance(entry[1], (Mapping, list, tuple))]
        if not inner:
            return
        level = inner
    raise InputError(
        f"field {level[0][0]!r} is nested too deeply",
        expected=f"at most {MAX_RECORD_DEPTH} objects and lists in each other",
        remedy="write it as a text, or leave it out",
    )


def _foreign_key(key: object, field: str | None) -> InputError:
    owner = "the record of a document" if field is None else f"field {field!r}"
    return InputError(
        f"{owner} has a key that is not a string",
        expected="a string",
        actual=f"{key!r}, {type(key).__name__}",
    )


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
