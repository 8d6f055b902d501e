"""The records of a source that one lane gets, in the order of the source.

Records are numbered through all files. A record is held out with a seeded chance, by its
number alone, so that it is held out in every epoch and whatever the shuffle; the others go
to the lanes in turn. Every lane reads the whole source and keeps its own: reading costs a
small part of encoding, and no two lanes need to know of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenreel.seeds import derive_key
from tokenreel.text.sources.record import Bad
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource

VERSION = 1
WHOLE = 1 << 62  # a whole file is one range, so that the cursor does not depend on a division


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """Say which records are taken: of one lane, held out or not.

    >>> [Deal(lane=1, num_lanes=3).takes(number) for number in range(4)]
    [False, True, False, False]
    """

    lane: int = 0
    num_lanes: int = 1
    held_out: float = 0.0
    wants_held_out: bool = False
    seed: int = 0

    def takes(self, number: int) -> bool:
        """Tell whether the record with this number is taken."""
        if number % self.num_lanes != self.lane:
            return False
        if not self.held_out:
            return True
        chance = derive_key("held out", self.seed, number) / 2**64
        return (chance < self.held_out) == self.wants_held_out


class Dealt(TextSource):
    """Give the records of a source that a deal takes, as one range."""

    def __init__(self, source: TextSource, deal: Deal) -> None:
        self.name = source.name
        self.options = source.options
        self._source = source
        self._deal = deal

    def identity(self) -> dict[str, Any]:
        """Return the identity of the source; which part of it is taken is the stream's."""
        return self._source.identity()

    def ranges(self, target_bytes: int) -> list[Range]:
        """Return one range."""
        return [Range(kind="stream")]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield what is taken with the cursor of what follows; a bad record has no number."""
        cursor = cursor or {"range": 0, "start": None, "number": 0}
        number, start = cursor["number"], cursor["start"]
        parts = self._source.ranges(WHOLE)
        for index in range(cursor["range"], len(parts)):
            for item, following in self._source.steps(parts[index], cursor=start):
                takes = self._deal.takes(number)
                number += not isinstance(item, Bad)
                if takes:
                    yield item, {"range": index, "start": following, "number": number}
            start = None
