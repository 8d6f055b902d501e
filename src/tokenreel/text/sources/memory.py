"""Documents and chats held in memory, or coming out of any iterable.

A string is a document, a mapping is taken by `text_key` (None: whole, as a chat), a list of
messages is the chat {"messages": …}. Sequences are divided by records; other iterables are
one range. An iterator can be read once and has no fingerprint of its content: it is never
held in memory, and nothing can tell a changed one from the one it replaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.extract import record_of, text_record
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource


class InMemory(TextSource):
    """Read an iterable of strings, mappings or message lists.

    >>> source = InMemory(["one", "two"])
    >>> [record.text for part in source.ranges(1) for record in source.read(part)]
    ['one', 'two']
    """

    def __init__(
        self, items: Iterable[Any], *, name: str = "memory", options: ReadOptions | None = None
    ) -> None:
        self.name = name
        self.options = options or ReadOptions()
        self._items = items
        self._is_spent = False
        self._survey: tuple[str, list[int]] | None = None

    def identity(self) -> dict[str, Any]:
        """Return the sha256 of all items in order; None for an iterator."""
        content = None if self._is_iterator() else self._surveyed()[0]
        return {"kind": "memory", "sha256": content, **self.options.identity()}

    @property
    def can_seek(self) -> bool:
        """Whether it can be read twice."""
        return not self._is_iterator()

    def ranges(self, target_bytes: int) -> list[Range]:
        """Divide a sequence by records; anything else is one range."""
        if not isinstance(self._items, Sequence):
            return [Range(kind="stream")]
        parts = []
        start, num_bytes = 0, 0
        sizes = self._surveyed()[1]
        for stop, size in enumerate(sizes, start=1):
            num_bytes += size
            if num_bytes >= target_bytes or stop == len(sizes):
                part = Range(kind="rows", start=start, stop=stop, row=start, num_bytes=num_bytes)
                parts.append(part)
                start, num_bytes = stop, 0
        return parts

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield each item's record with the number of the next item."""
        first = part.start if cursor is None else cursor["row"]
        for row, item in enumerate(self._from(part, first), start=first):
            yield self._record(item, Provenance(row=row)), {"row": row + 1}

    def _from(self, part: Range, first: int) -> Iterator[Any]:
        if part.kind == "rows" and isinstance(self._items, Sequence):
            return (self._items[row] for row in range(first, part.stop))
        if self._is_iterator():
            if self._is_spent or first:
                raise InputError(
                    "an iterator can be read only once, from its start",
                    where=self.name,
                    remedy="pass a sequence, or write the documents to JSONL, to resume",
                )
            self._is_spent = True
        items = iter(self._items)
        for _ in range(first):
            next(items, None)
        return items

    def _record(self, item: object, place: Provenance) -> Record | Bad:
        if isinstance(item, str):
            return text_record(item, place, self.options)
        if isinstance(item, Mapping):
            return record_of(dict(item), place, self.options)
        if isinstance(item, (list, tuple)):
            return record_of(
                {"messages": list(item)}, place, ReadOptions(text_key=None, id_key=None)
            )
        is_chat, key = self.options.text_key is None, self.options.text_key
        return bad_record(
            "not a chat" if is_chat else "not a text",
            place,
            expected="a list of messages or an object"
            if is_chat
            else f"a string, or an object with the key {key!r}",
            actual="None" if item is None else type(item).__name__,
            remedy='repair it, or pass on_bad="skip" to count it and go on',
        )

    def _is_iterator(self) -> bool:
        return isinstance(self._items, Iterator)

    def _surveyed(self) -> tuple[str, list[int]]:
        if self._survey is None:
            digest, sizes = hashlib.sha256(), []
            for item in self._items:
                data = json.dumps(item, sort_keys=True, default=repr).encode()
                # The length in front keeps two items apart from one that spells both.
                digest.update(len(data).to_bytes(8, "little") + data)
                sizes.append(len(data))
            self._survey = digest.hexdigest(), sizes
        return self._survey
