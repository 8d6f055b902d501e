"""Where a document came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Name the place a document was read from; every part may be unknown.

    `row` counts records of the file from 0: lines of JSONL, rows of Parquet.
    `byte` is where the record starts in the (uncompressed) file.

    >>> print(Provenance(file="web.jsonl", row=6, byte=81920))
    web.jsonl:7
    """

    file: str | None = None
    row: int | None = None
    byte: int | None = None
    id: str | None = None

    @property
    def line(self) -> int | None:
        """The record's number as people and editors count: from 1."""
        return None if self.row is None else self.row + 1

    def __str__(self) -> str:
        place = self.file or "(memory)"
        if self.line is not None:
            place += f":{self.line}"
        return f"{place} [{self.id}]" if self.id else place

    def as_dict(self) -> dict[str, str | int]:
        """Return what is known, ready for JSON."""
        known = {"file": self.file, "row": self.row, "byte": self.byte, "id": self.id}
        return {key: value for key, value in known.items() if value is not None}
