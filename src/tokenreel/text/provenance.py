"""Where a document came from, and in which documents an error happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tokenreel.errors import InputError, TokenreelError, WorkerError


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


def name_span(first: Provenance, last: Provenance) -> str:
    """Name the documents from the first to the last.

    >>> name_span(Provenance(file="a.jsonl", row=0), Provenance(file="a.jsonl", row=6))
    'a.jsonl:1 to a.jsonl:7'
    """
    return str(first) if first == last else f"{first} to {last}"


@contextmanager
def located(where: Callable[[], str], *, remedy: str) -> Iterator[None]:
    """Name the documents, `where()`, in every error of the block that does not name a place.

    Errors that are not tokenreel's become a WorkerError with this remedy; KeyboardInterrupt and
    the like pass through.
    """
    try:
        yield
    except InputError as error:
        if error.where is not None:
            raise
        raise InputError(
            error.what,
            where=where(),
            expected=error.expected,
            actual=error.actual,
            remedy=error.remedy,
        ) from error
    except TokenreelError:
        raise
    except Exception as error:
        said = "out of memory" if isinstance(error, MemoryError) else "encoding failed"
        raise WorkerError(
            f"{said}: {type(error).__name__}: {error}".removesuffix(": "),
            where=where(),
            remedy=remedy,
        ) from error
