"""What every tokenizer offers.

    Tokenizer         what a tokenizer of your own must have, to be taken wherever one is
    LoadedTokenizer   what `load_tokenizer` makes of a file, a name or a library's object: the
                      same, with `encode` for a single text and a `decode` that takes tensors

The promise: neither `encode_batch` nor `encode` returns a control id, whatever the text
spells. Control ids come from structure alone (a document's end, a turn's role), which
takes them from `control_ids`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tokenreel.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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


@runtime_checkable
class LoadedTokenizer(Tokenizer, Protocol):
    """A tokenizer that `load_tokenizer` opened: the protocol, and what a person calls."""

    def encode(self, text: str) -> list[int]:
        """Encode one text as `encode_batch` does; for many texts that one is faster."""

    def decode(self, ids: ArrayLike) -> str:
        """Return the text of the ids: a list, a numpy array or a tensor of one dimension."""


def encode_one(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of one text as a list; what is not a string is an InputError."""
    if not isinstance(text, str):
        raise InputError(
            "encode takes one string",
            actual=type(text).__name__,
            remedy="give several texts to encode_batch",
        )
    return tokenizer.encode_batch([text]).ids.tolist()


def as_id_array(ids: Any) -> np.ndarray:
    """Return token ids as int64 [tokens]; what is not a row of integers is an InputError.

    >>> as_id_array([5, 6]), as_id_array([])
    (array([5, 6]), array([], dtype=int64))
    """
    if hasattr(ids, "detach"):  # a torch tensor, which numpy reads from the host's memory alone
        ids = ids.detach().cpu()
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, bfloat16 tensors
        array = np.asarray(None)
    if array.ndim != 1:
        raise InputError(
            "these are not the ids of one text",
            expected="a list, numpy array or tensor of integers, with one dimension",
            actual=f"shape {array.shape}" if array.ndim else type(ids).__name__,
            remedy="decode a batch row by row" if array.ndim else "",
        )
    if not len(array):
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and array.max() >> 63):
        raise InputError("token ids are integers", actual=f"{array[0]!r} ({array.dtype})")
    return array.astype(np.int64, copy=False)
