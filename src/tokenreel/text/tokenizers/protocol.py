"""What every tokenizer offers.

The promise: `encode_batch` never returns a control id, whatever the text spells.
Control ids come from structure alone (a document's end, a turn's role), which
takes them from `control_ids`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Token ids of many texts, end to end: text i is `ids[offsets[i]:offsets[i + 1]]`.

    ids: uint32 [total]; offsets: int64 [texts + 1].
    """

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        return self.ids[self.offsets[number] : self.offsets[number + 1]]


def join(parts: Sequence[Sequence[int] | np.ndarray]) -> Encoded:
    """Lay the ids of each text end to end.

    >>> join([[5, 6], [], [7]])
    Encoded(ids=array([5, 6, 7], dtype=uint32), offsets=array([0, 2, 2, 3]))
    """
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    ids = np.empty(int(offsets[-1]), np.uint32)
    for number, part in enumerate(parts):
        ids[offsets[number] : offsets[number + 1]] = part
    return Encoded(ids=ids, offsets=offsets)


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back; ids are defined by the reference implementation."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, control ids included."""

    @property
    def control_ids(self) -> Mapping[str, int]:
        """The control tokens by their strings; no text is ever encoded to one of them."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the kind and the bytes of the files that define the ids."""

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode each text as ordinary text: no control ids, no added BOS or EOS."""

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of the ids; control ids show as their strings."""
