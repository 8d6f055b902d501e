"""Bring token ids into the dtype of a store, refusing those that do not fit.

One pass in C (3–10 GB/s); the numpy reference takes three.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenreel import native
from tokenreel.errors import VocabularyError

NARROW_TOKENS = 1024 * 1024  # cast this many ids at a time: a mapped giant is never in memory whole


def narrow(ids: np.ndarray, dtype: np.dtype, *, limit: int) -> np.ndarray:
    """Return `ids` as `dtype`; an id outside [0, limit) raises OutOfVocabularyError.

    >>> narrow(np.array([1, 2]), np.dtype("<u2"), limit=3).tolist()
    [1, 2]
    """
    narrowed = np.empty(len(ids), dtype)
    narrow_into(ids, narrowed, limit=limit)
    return narrowed


def narrowed(ids: np.ndarray, dtype: np.dtype, *, limit: int, where: str) -> Iterator[np.ndarray]:
    """Yield the ids as `dtype`, a million at a time; one outside the vocabulary is an error."""
    for start in range(0, len(ids), NARROW_TOKENS):
        try:
            yield narrow(ids[start : start + NARROW_TOKENS], dtype, limit=limit)
        except OutOfVocabularyError as error:
            raise error.located(where, position=start + error.position) from None


def narrow_into(ids: np.ndarray, target: np.ndarray, *, limit: int) -> None:
    """Write `ids` into `target`, which is as long and of the store's dtype."""
    if ids.dtype.kind not in "ui":
        raise VocabularyError("token ids must be integers", actual=str(ids.dtype))
    limit = min(limit, int(np.iinfo(target.dtype).max) + 1)
    extension = native.extension()
    if extension is None or not ids.dtype.isnative:
        bad = narrow_reference(ids, target, limit)
    else:
        kind = f"{ids.dtype.kind}{ids.dtype.itemsize}"
        source = np.require(ids, requirements=["C", "A"])
        bad = extension.narrow(source, kind, target, target.dtype.itemsize, limit)
    if bad >= 0:
        raise OutOfVocabularyError(int(ids[bad]), position=bad, limit=limit)


def narrow_ended(
    ids: np.ndarray, offsets: np.ndarray, dtype: np.dtype, *, limit: int, end_id: int
) -> np.ndarray:
    """Return documents that lie end to end as `dtype`, with `end_id` behind each of them.

    >>> narrow_ended(np.array([5, 6, 7]), np.array([0, 2, 3]), np.dtype("<u2"), limit=9, end_id=0)
    array([5, 6, 0, 7, 0], dtype=uint16)
    """
    ended = np.empty(len(ids) + len(offsets) - 1, dtype)
    limit = min(limit, int(np.iinfo(dtype).max) + 1)
    if not 0 <= end_id < limit:
        raise OutOfVocabularyError(end_id, position=0, limit=limit)
    extension = native.extension()
    if extension is None or ids.dtype.kind not in "ui" or not ids.dtype.isnative:
        _end_reference(narrow(ids, dtype, limit=limit), offsets, ended, end_id)
        return ended
    kind = f"{ids.dtype.kind}{ids.dtype.itemsize}"
    source = np.require(ids, requirements=["C", "A"])
    bounds = np.require(offsets, np.int64, requirements=["C", "A"])
    bad = extension.narrow_ended(source, kind, bounds, ended, ended.itemsize, limit, end_id)
    if bad >= 0:
        raise OutOfVocabularyError(int(ids[bad]), position=bad, limit=limit)
    return ended


def _end_reference(ids: np.ndarray, offsets: np.ndarray, ended: np.ndarray, end_id: int) -> None:
    ends = offsets[1:] + np.arange(len(offsets) - 1)
    is_text = np.ones(len(ended), bool)
    is_text[ends] = False
    ended[is_text] = ids
    ended[ends] = end_id


def narrow_reference(ids: np.ndarray, target: np.ndarray, limit: int) -> int:
    """Do the same in numpy; return the index of the first id outside [0, limit), or -1."""
    wrong = (ids < 0) | (ids >= limit)
    target[:] = ids.astype(target.dtype)
    return int(np.argmax(wrong)) if wrong.any() else -1


class OutOfVocabularyError(VocabularyError):
    """One id outside the vocabulary, and where it stands in the array that was given."""

    def __init__(self, token: int, *, position: int, limit: int, where: str | None = None) -> None:
        self.token = token
        self.position = position
        self.limit = limit
        super().__init__(
            f"token id at position {position:,} is outside the vocabulary",
            where=where,
            expected=f"0 to {limit - 1:,}",
            actual=token,
            remedy="use the tokenizer the store was declared with, or a larger vocab_size",
        )

    def located(self, where: str, *, position: int) -> OutOfVocabularyError:
        """Return the same error, told in terms of a document."""
        return OutOfVocabularyError(self.token, position=position, limit=self.limit, where=where)
