"""Several sources read one after the other as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tokenreel.text.sources.jsonl_columns import ColumnReader
from tokenreel.text.sources.source_protocol import Cursor, Range, Reader, Step, TextSource


class Chained(TextSource):
    """Read sources in order; a range knows which of them it belongs to."""

    def __init__(self, sources: Sequence[TextSource]) -> None:
        self.name = "+".join(source.name for source in sources)
        self.options = sources[0].options
        self.sources = tuple(sources)

    def identity(self) -> dict[str, Any]:
        """Return the identities of the sources, in order."""
        return {"kind": "chain", "sources": [source.identity() for source in self.sources]}

    def ranges(self, target_bytes: int) -> list[Range]:
        """Return the ranges of each source, in order."""
        return [
            replace(part, source=index)
            for index, source in enumerate(self.sources)
            for part in source.ranges(target_bytes)
        ]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield the steps of the range's own source."""
        return self.sources[part.source].steps(replace(part, source=0), cursor=cursor)

    def read(self, part: Range, *, cursor: Cursor | None = None) -> Reader:
        """Return a reader of the range's own source, by that source's own options."""
        return self.sources[part.source].read(replace(part, source=0), cursor=cursor)

    def columns(self, part: Range) -> ColumnReader | None:
        """Return the documents of the range side by side, if its own source can give them so."""
        return self.sources[part.source].columns(replace(part, source=0))
