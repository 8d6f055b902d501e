"""What every source answers, and how it is read.

    source ── ranges(target_bytes) ──► [Range, Range, …]     work, divided by content alone
    source ── read(range, cursor=…) ─► Reader ──► Record, Record, …
                                         └ .cursor: the exact next record, JSON
                                         └ .skipped: what was passed over, and why
    source ── columns(range) ────────► the same documents as arrays, or None: jsonl_columns.py

The records of all ranges, one range after the other, are the same for every
`target_bytes`. Sources, ranges and cursors can be pickled; cursors are JSON.
Reading holds one block and one record in memory, never a file.

This is not a place for retries or shuffling: retry.py and shuffle.py wrap `steps`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, Skipped

if TYPE_CHECKING:
    from tokenreel.text.sources.jsonl_columns import ColumnReader

Cursor = dict[str, Any]
Step = tuple[Record | Bad, Cursor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Name a part of a source: what `start` and `stop` count depends on the kind.

    jsonl: bytes of `file` (uncompressed where it is compressed: the whole file) ·
    parquet: row groups of `file` · text: files of the source · rows: records · stream: all.
    `row` is the number of the first record in its file, `num_bytes` the work, for progress.
    """

    kind: str
    file: str = ""
    start: int = 0
    stop: int = 0
    row: int = 0
    num_bytes: int = 0
    source: int = 0


class Reader(Iterator[Record]):
    """Iterate over records; `cursor` always names the exact next one.

    A bad record raises its error, with the cursor still before it, unless `on_bad` is
    "skip": then it is counted in `skipped`.
    """

    def __init__(self, steps: Iterator[Step], *, cursor: Cursor | None, on_bad: str) -> None:
        self.cursor = cursor
        self.skipped = Skipped()
        self._steps = steps
        self._on_bad = on_bad

    def __next__(self) -> Record:
        for item, cursor in self._steps:
            if type(item) is Record:
                self.cursor = cursor
                return item
            self._pass_over(item, cursor)  # type: ignore[arg-type]
        raise StopIteration

    def _pass_over(self, bad: Bad, cursor: Cursor) -> None:
        if self._on_bad == "error":
            # Asked again, it says so again: going on would be a silent skip.
            self._steps = repeat((bad, cursor))
            raise bad.error
        self.skipped.add(bad)
        self.cursor = cursor


class TextSource(ABC):
    """Yield documents or chats with provenance, in parts, from any cursor on."""

    name: str
    options: ReadOptions

    @property
    def can_seek(self) -> bool:
        """Whether it can be read from a cursor on; an iterator only from its start."""
        return True

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what decides the records (checksums, revisions, keys), ready for JSON."""

    @abstractmethod
    def ranges(self, target_bytes: int) -> list[Range]:
        """Divide the source into parts of about `target_bytes`, in order."""

    @abstractmethod
    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield each record or bad record with the cursor of what follows it."""

    def fingerprint(self) -> str:
        """Return the sha256 of `identity`: it moves with the data and changes with any byte."""
        canonical = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def read(self, part: Range, *, cursor: Cursor | None = None) -> Reader:
        """Return a reader over the records of `part`, from `cursor` on."""
        steps = self.steps(part, cursor=cursor)
        return Reader(steps, cursor=cursor, on_bad=self.options.on_bad)

    def columns(self, part: Range) -> ColumnReader | None:
        """Return the same documents side by side, where the source can give them so: faster."""
        return None
