"""What a loader must know of a tokenizer, whichever library it is from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.errors import ConfigError, VocabularyError


def eos_id_of(tokenizer: Any) -> int | None:
    """Return its end-of-text id: `eos_id`, or `eos_token_id`; None where it has none."""
    for name in ("eos_id", "eos_token_id"):
        found = _number(tokenizer, name)
        if found is not None and found >= 0:  # SentencePiece says -1 for "none"
            return found
    return None


def vocab_size_of(tokenizer: Any) -> int | None:
    """Return one more than its largest id, tokens added later included; None if unknown."""
    names = ("vocab_size", "n_vocab", "__len__")
    known = [size for size in (_number(tokenizer, name) for name in names) if size]
    return max(known, default=None)


def _number(tokenizer: Any, name: str) -> int | None:
    value = getattr(tokenizer, name, None)
    if callable(value):
        value = value()
    return int(value) if isinstance(value, (int, np.integer)) else None


def choose_pad_id(pad_token_id: int | None, tokenizer: Any) -> int:
    """Return the id that fills rows: the one given, else the tokenizer's end of text."""
    chosen = eos_id_of(tokenizer) if pad_token_id is None else pad_token_id
    if chosen is None:
        raise ConfigError(
            "there is no id to pad with",
            expected="pad_token_id in the configuration, or a tokenizer with eos_id",
            remedy="set pad_token_id",
        )
    vocab_size = vocab_size_of(tokenizer)
    if vocab_size is not None and chosen >= vocab_size:
        raise VocabularyError(
            "pad_token_id is outside the vocabulary",
            expected=f"0 to {vocab_size - 1:,}",
            actual=chosen,
        )
    return chosen


def check_ids(ids: np.ndarray, vocab_size: int | None, *, where: Any) -> None:
    """Raise VocabularyError for an id that is not below `vocab_size`; None: nothing is known."""
    if vocab_size is None or not ids.size:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise VocabularyError(
            "a token id is outside the vocabulary",
            where=where,
            expected=f"0 to {vocab_size - 1:,}",
            actual=low if low < 0 else high,
            remedy="declare the dtype the tokens were written with, or the right tokenizer",
        )
