"""Which documents of a shard came from a place, file:line or file, or have an id.

The tables of origins are compared as arrays, some ten thousand records a time: who searches can
leave between them. A million documents take some tenths of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenreel.store.origins import UNKNOWN_STRING
from tokenreel.store.shard import Shard

COMPARED_BYTES = 1 << 20  # at once
PLACE = re.compile(r"(.+):([0-9]{1,18})", re.DOTALL | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPlace:
    """What is searched for: an id or a file, or also a row of a file; names as UTF-8."""

    name: bytes
    file: bytes | None
    row: int


def asked_place(text: str) -> AskedPlace:
    """Return what a text may stand for: an id, a file, or file:line.

    >>> asked_place("web.jsonl:231")
    AskedPlace(name=b'web.jsonl:231', file=b'web.jsonl', row=230)
    """
    place = PLACE.fullmatch(text)
    return AskedPlace(
        name=text.encode("utf-8", "surrogatepass"),
        file=None if place is None else place[1].encode("utf-8", "surrogatepass"),
        row=-1 if place is None else int(place[2]) - 1,
    )


def entries_from(shard: Shard, asked: AskedPlace) -> Iterator[np.ndarray]:
    """Yield the entries of a shard that came from a place, int64, for some records a time."""
    origins, table = shard.origin_file, shard.string_file
    if origins is None or table is None:
        return
    shard.check_sizes()  # before a mapped file that was cut off is read behind its end
    data = table.whole(shard.mode)
    size = max(COMPARED_BYTES // (len(asked.name) + 1), 1)
    for start in range(0, origins.count, size):
        records = origins.read(start, min(start + size, origins.count))
        ids, files = _Strings(data, records["id"]), _Strings(data, records["file"])
        is_damaged = ids.is_damaged | files.is_damaged
        if is_damaged.any():  # reading the record by itself says what is wrong
            shard.provenance(start + int(np.argmax(is_damaged)))
        chosen = ids.are(asked.name) | files.lead_to(asked.name)
        if asked.file is not None:
            chosen |= files.lead_to(asked.file) & (records["row"] == asked.row)
        yield start + np.flatnonzero(chosen)


class _Strings:
    """The strings that n records point to: bytes behind their lengths, four bytes each.

    data: uint8, the table of strings. offsets: uint32 [n]. Of records that point to the same
    string it is compared once.
    """

    def __init__(self, data: np.ndarray, offsets: np.ndarray) -> None:
        used, self._owner = np.unique(offsets, return_inverse=True)
        self._data, self._is_known = data, used != UNKNOWN_STRING
        begins = used.astype(np.int64) + 4
        is_behind = begins > len(data)  # so are those that are not known
        # The bytes of each length, uint8 [used, 4]; of what lies behind the end, nothing.
        heads = np.zeros((len(used), 4), np.uint8)
        heads[~is_behind] = data[begins[~is_behind, None] - np.arange(4, 0, -1)]
        self._lengths = heads.view("<u4")[:, 0].astype(np.int64)
        self._ends = begins + self._lengths
        is_behind |= self._ends > len(data)
        self.is_damaged = (self._is_known & is_behind)[self._owner]

    def are(self, text: bytes) -> np.ndarray:
        """Return which strings are a text, bool [n]."""
        return self._end_with(text, self._lengths == len(text))[self._owner]

    def lead_to(self, name: bytes) -> np.ndarray:
        """Return which strings are the path of a file, or end with it behind a slash; bool [n]."""
        end = b"/" + name.lstrip(b"/")
        return self.are(name) | self._end_with(end, self._lengths >= len(end))[self._owner]

    def _end_with(self, text: bytes, is_long: np.ndarray) -> np.ndarray:
        """Return which of the strings that are long enough, bool [used], end with a text."""
        chosen = np.flatnonzero(is_long & self._is_known)
        tails = self._data[self._ends[chosen, None] - np.arange(len(text), 0, -1)]
        is_same = np.zeros(len(is_long), bool)
        is_same[chosen] = (tails == np.frombuffer(text, np.uint8)).all(axis=1)
        return is_same
