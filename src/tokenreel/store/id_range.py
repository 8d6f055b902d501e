"""Ids held against a vocabulary: of tokens at hand, or of a whole file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenreel.errors import VocabularyError
from tokenreel.store.file_arrays import ArrayFile

TOKENS_AT_ONCE = 1 << 20


def check_id_range(ids: np.ndarray, limit: int | None, *, where: Path, start: int = 0) -> None:
    """Raise VocabularyError for the first id below 0 or not below `limit`; None: only below 0.

    `start`: the number of the first of these tokens in the file they are of.
    """
    if not len(ids) or (int(ids.min()) >= 0 and (limit is None or int(ids.max()) < limit)):
        return
    at = int(np.argmax((ids < 0) | (ids >= (2**63 if limit is None else limit))))
    raise VocabularyError(
        f"token {start + at:,} is outside the vocabulary",
        where=where,
        expected=">= 0" if limit is None else f"0 to {limit - 1:,}",
        actual=int(ids[at]),
        remedy="use the tokenizer that the model was made for, or the model's vocab_size",
    )


def check_file_ids(tokens: ArrayFile, limit: int | None) -> None:
    """Do the same for every token of a file: about 0.1 s for each 100 MB."""
    for start in range(0, tokens.count, TOKENS_AT_ONCE):
        ids = tokens.read(start, min(start + TOKENS_AT_ONCE, tokens.count))
        check_id_range(ids, limit, where=tokens.path, start=start)
