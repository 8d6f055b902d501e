"""Shuffle a stream in blocks, exactly restorable.

Records are taken `buffer` at a time and each block is given out in a keyed order that is a
pure function of (seed, block number). The cursor is where the block starts in the source
and how many of it were given out, so restoring reads at most one block again, and the order
does not depend on where it was interrupted. A record moves at most one block away: this is
as much disorder as the buffer holds, no more. Bad records of a block come before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.seeds import derive_key, shuffled
from tokenreel.text.sources.record import Bad
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource

VERSION = 1


class Shuffled(TextSource):
    """Give the records of a source in a seeded order, block by block; one range."""

    def __init__(self, source: TextSource, *, buffer: int, seed: int) -> None:
        if buffer < 1:
            raise ConfigError("the shuffle buffer is empty", expected=">= 1", actual=buffer)
        self.name = source.name
        self.options = source.options
        self._source = source
        self._buffer = buffer
        self._seed = seed

    def identity(self) -> dict[str, Any]:
        """Return the identity of the source, with seed, buffer and version of the order."""
        return {
            "kind": "shuffled",
            "buffer": self._buffer,
            "seed": self._seed,
            "version": VERSION,
            "source": self._source.identity(),
        }

    def ranges(self, target_bytes: int) -> list[Range]:
        """Return one range: blocks run on from range to range of the source."""
        parts = self._source.ranges(target_bytes)
        return [Range(kind="stream", num_bytes=sum(part.num_bytes for part in parts))]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield the records block by block, each block in its keyed order."""
        cursor = cursor or {"block": 0, "at": 0, "range": 0, "start": None}
        number, given = cursor["block"], cursor["at"]
        # A whole file is read as one range, so that the cursor does not depend on a division.
        parts = self._source.ranges(1 << 62)
        steps = _chained(self._source, parts, cursor["range"], cursor["start"])
        at = {"range": cursor["range"], "start": cursor["start"]}
        while block := list(islice(steps, self._buffer)):
            here = {"block": number, **at}
            at = block[-1][1]
            after = {"block": number + 1, "at": 0, **at}
            yield from _shuffled(block, self._seed, here, after, given)
            number, given = number + 1, 0


def _chained(
    source: TextSource, parts: list[Range], first: int, cursor: Cursor | None
) -> Iterator[Step]:
    for index in range(first, len(parts)):
        for item, following in source.steps(parts[index], cursor=cursor):
            yield item, {"range": index, "start": following}
        cursor = None


def _shuffled(
    block: list[Step], seed: int, here: Cursor, after: Cursor, given: int
) -> Iterator[Step]:
    records = [item for item, _ in block if not isinstance(item, Bad)]
    if not given:
        yield from ((item, {**here, "at": 0}) for item, _ in block if isinstance(item, Bad))
    order = shuffled(len(records), derive_key("stream shuffle", seed, here["block"]))
    for position in range(given, len(records)):
        is_last = position + 1 == len(records)
        yield records[order[position]], after if is_last else {**here, "at": position + 1}
