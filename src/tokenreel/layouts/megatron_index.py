"""The document index of a Megatron pair, asked in place.

A document is a range of sequences, a sequence a range of bytes. Sequences lie
end to end, so a document ends where the sequence after it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError

CHECK_ENTRIES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceRanges:
    """lengths int32 [S] and pointers int64 [S] of sequences; documents int64 [N + 1]."""

    lengths: np.ndarray
    pointers: np.ndarray
    documents: np.ndarray
    itemsize: int
    num_tokens: int

    def __len__(self) -> int:
        return len(self.documents) - 1

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return starts and stops of documents, as token numbers."""
        return self._starts(self.documents[numbers]), self._starts(self.documents[numbers + 1])

    def _starts(self, sequences: np.ndarray) -> np.ndarray:
        last = len(self.pointers) - 1
        if last < 0:
            return np.zeros(len(sequences), np.int64)
        starts = self.pointers[np.minimum(sequences, last)] // self.itemsize
        return np.where(sequences > last, self.num_tokens, starts)


def check_sequences(ranges: SequenceRanges, *, where: Path) -> None:
    """Raise DamageError unless sequences lie end to end and documents cover them, in order."""
    end = 0
    for first in range(0, len(ranges.lengths), CHECK_ENTRIES):
        part = slice(first, first + CHECK_ENTRIES)
        lengths = ranges.lengths[part].astype(np.int64)
        pointers = ranges.pointers[part]
        ends = end + np.cumsum(lengths * ranges.itemsize)
        expected = np.concatenate(([end], ends[:-1]))
        _refuse(
            "sequence", first, (lengths < 0) | (pointers != expected), pointers, expected, where
        )
        end = int(ends[-1])
    num_sequences, previous = len(ranges.lengths), 0
    for first in range(0, len(ranges.documents), CHECK_ENTRIES):
        documents = ranges.documents[first : first + CHECK_ENTRIES]
        before = np.concatenate(([previous], documents[:-1]))
        wrong = (documents < before) | (documents > num_sequences)
        _refuse("document entry", first, wrong, documents, before, where)
        previous = int(documents[-1])
    if previous != num_sequences or ranges.documents[0] != 0:
        raise DamageError(
            "the documents do not cover the sequences",
            where=where,
            expected=f"0 to {num_sequences:,}",
            actual=f"{int(ranges.documents[0]):,} to {previous:,}",
            remedy="restore the file",
        )


def _refuse(
    what: str,
    first: int,
    wrong: np.ndarray,
    values: np.ndarray,
    expected: np.ndarray,
    where: Path,
) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DamageError(
            f"{what} {first + at:,} is out of order or has a negative length",
            where=where,
            expected=f"{int(expected[at]):,}" if what == "sequence" else f">= {expected[at]:,}",
            actual=int(values[at]),
            remedy="restore the file",
        )
