"""What came of each source file: documents, bytes of text, tokens; the first 200 files by name.

The files after them are counted together, so that a folder of a million files costs no more
than one of two hundred. Sources are read file by file: a file of which one part after another
is counted is one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MAX_FILES = 200
OTHERS = ""  # no file has this name


class FileCounts:
    """Add up documents, bytes of text and tokens by file.

    >>> files = FileCounts()
    >>> files.add({"a.txt": (1, 10, 3), "b.txt": (1, 5, 2)})
    >>> files.add({"a.txt": (2, 20, 6)})
    >>> files.rows(), files.total()
    ([['a.txt', 3, 30, 9], ['b.txt', 1, 5, 2]], (4, 35, 11))
    """

    def __init__(self) -> None:
        self._named: dict[str, list[int]] = {}
        self._others = [0, 0, 0]
        self._num_others = 0
        self._last_other = OTHERS

    def add(self, counts: Mapping[str, Iterable[int]]) -> None:
        """Count what came of these files."""
        for name, numbers in counts.items():
            if name in self._named or len(self._named) < MAX_FILES:
                held = self._named.setdefault(name, [0, 0, 0])
            else:
                held = self._others
                self._num_others += name != self._last_other
                self._last_other = name
            held[:] = [a + b for a, b in zip(held, numbers, strict=True)]

    def add_rows(self, rows: Iterable[list[Any]]) -> None:
        """Count what another FileCounts gave as rows."""
        for name, *numbers in rows:
            if name == OTHERS:
                *numbers, num_files = numbers
                self._others = [a + b for a, b in zip(self._others, numbers, strict=True)]
                self._num_others += num_files
            else:
                self.add({name: numbers})

    def rows(self) -> list[list[Any]]:
        """Return [name, documents, bytes, tokens] of each file, ready for JSON.

        Where there are more files than are named, the last row has the name OTHERS, and how many
        files they are behind the counts.
        """
        rows = [[name, *numbers] for name, numbers in self._named.items()]
        return [*rows, [OTHERS, *self._others, self._num_others]] if self._num_others else rows

    def total(self) -> tuple[int, int, int]:
        """Return the documents, bytes and tokens of all files."""
        counts = [*self._named.values(), self._others]
        documents, text_bytes, tokens = map(sum, zip(*counts, strict=True))
        return documents, text_bytes, tokens
