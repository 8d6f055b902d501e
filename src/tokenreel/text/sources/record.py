"""What a source hands over: records, and an account of those it could not use.

A record is one document (`text`) or one object such as a chat (`value`), with the
place it came from. A record that cannot be used is a `Bad`: it holds the error to
raise and what `Skipped` counts when the caller chose to go on without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance

MAX_PLACES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Hold one document (`text`) or one object (`value`), and where it was read."""

    text: str | None = None
    value: dict[str, Any] | None = None
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """Name a record that cannot be used; `provenance.byte` is where the fault is."""

    reason: str
    provenance: Provenance
    error: InputError


def bad_record(
    reason: str,
    place: Provenance,
    *,
    byte: int | None = None,
    expected: object = None,
    actual: object = None,
    remedy: str,
) -> Bad:
    """Return the Bad for a fault at `byte` of the file (default: where the record starts).

    >>> place = Provenance(file="web.jsonl", row=6, byte=81920)
    >>> print(bad_record("invalid UTF-8", place, byte=81931, remedy="convert the file").error)
    web.jsonl:7: invalid UTF-8 at byte 81,931; convert the file
    """
    place = replace(place, byte=place.byte if byte is None else byte)
    what = reason if place.byte is None else f"{reason} at byte {place.byte:,}"
    error = InputError(what, where=str(place), expected=expected, actual=actual, remedy=remedy)
    return Bad(reason=reason, provenance=place, error=error)


@dataclass(slots=True, kw_only=True)
class Skipped:
    """Count skipped records by reason, and keep the first places (file, line, byte).

    >>> tally = Skipped()
    >>> tally.add(bad_record("NUL", Provenance(file="a.txt", byte=3), remedy="remove it"))
    >>> tally.count, tally.reasons, tally.places
    (1, {'NUL': 1}, [{'reason': 'NUL', 'file': 'a.txt', 'byte': 3}])
    """

    reasons: dict[str, int] = field(default_factory=dict)
    places: list[dict[str, str | int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of skipped records."""
        return sum(self.reasons.values())

    def add(self, bad: Bad) -> None:
        """Count one skipped record."""
        self.reasons[bad.reason] = self.reasons.get(bad.reason, 0) + 1
        if len(self.places) < MAX_PLACES:
            self.places.append({"reason": bad.reason, **bad.provenance.as_dict()})

    def merge(self, other: Skipped) -> None:
        """Add the account of another read."""
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        self.places.extend(other.places[: MAX_PLACES - len(self.places)])

    def as_dict(self) -> dict[str, object]:
        """Return the account, ready for JSON."""
        return {"count": self.count, "reasons": dict(self.reasons), "places": list(self.places)}
