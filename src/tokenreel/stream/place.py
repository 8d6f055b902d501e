"""Where a stream of documents stands: everything that is needed to read on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenreel.text.sources.source_protocol import Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Before document `number` of an epoch; `cursor` leads the source there, None to its start.

    >>> Place.from_dict(Place(number=3).as_dict()) == Place(number=3)
    True
    """

    epoch: int = 0
    number: int = 0
    cursor: Cursor | None = None

    @property
    def is_start(self) -> bool:
        """Whether nothing comes before it."""
        return self.epoch == self.number == 0

    def as_dict(self) -> dict[str, Any]:
        """Return the place, ready for JSON.

        The cursor is text, whatever the source: Grain asks for states of one shape at all steps.
        """
        return {"epoch": self.epoch, "number": self.number, "cursor": json.dumps(self.cursor)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Place:
        """Return the place that `as_dict` described."""
        return cls(**{**fields, "cursor": json.loads(fields["cursor"])})
