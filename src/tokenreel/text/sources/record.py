"""What a source hands over: records, and an account of those it could not use.

A record is one document (`text`) or one object such as a chat (`value`), with the
place it came from and the dirt that was found in it (rows.py says what that is). A record
that cannot be used is a `Bad`: it holds the error to raise and what `Skipped` counts when
the caller chose to go on without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance

MAX_PLACES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Hold one document (`text`) or one object (`value`), where it was read, and its dirt."""

    text: str | None = None
    value: dict[str, Any] | None = None
    provenance: Provenance
    dirt: tuple[str, ...] = ()


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
class Tally:
    """Count records by reason, and keep the first places (file, line, byte).

    >>> tally = Tally()
    >>> tally.note("NUL", Provenance(file="a.txt", byte=3))
    >>> tally.count, tally.reasons, tally.places
    (1, {'NUL': 1}, [{'reason': 'NUL', 'file': 'a.txt', 'byte': 3}])
    """

    reasons: dict[str, int] = field(default_factory=dict)
    places: list[dict[str, str | int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How often anything was counted."""
        return sum(self.reasons.values())

    def note(self, reason: str, place: Provenance) -> None:
        """Count one record for a reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.places) < MAX_PLACES:
            self.places.append({"reason": reason, **place.as_dict()})

    def merge(self, other: Tally) -> None:
        """Add what another tally counted."""
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        self.places.extend(other.places[: MAX_PLACES - len(self.places)])

    def note_dirt(self, record: Record) -> None:
        """Count a record once for each kind of dirt that was found in it."""
        for reason in record.dirt:
            self.note(reason, record.provenance)

    def as_dict(self) -> dict[str, object]:
        """Return the account, ready for JSON."""
        return {"count": self.count, "reasons": dict(self.reasons), "places": list(self.places)}


class Skipped(Tally):
    """Count the records that were passed over because they cannot be used."""

    __slots__ = ()

    def add(self, bad: Bad) -> None:
        """Count one skipped record."""
        self.note(bad.reason, bad.provenance)
