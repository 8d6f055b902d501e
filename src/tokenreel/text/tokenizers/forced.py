"""Text of ids that may be another tokenizer's: an id that this one lacks is shown as ⟨2000⟩."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tokenreel.errors import VocabularyError
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer


def decode_what_is_known(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of the ids, with the numbers of those that the tokenizer does not have.

    >>> from tokenreel.text.tokenizers import load_tokenizer
    >>> decode_what_is_known(load_tokenizer("byte"), [104, 105, 2000, 33])
    'hi⟨2000⟩!'
    """
    try:
        return tokenizer.decode(ids)
    except VocabularyError:
        known = {number: _is_known(tokenizer, number) for number in set(ids)}
    # Runs of known ids are decoded as one: a character may be spread over several of them.
    runs = ((is_known, list(run)) for is_known, run in groupby(ids, known.__getitem__))
    return "".join(
        tokenizer.decode(run) if is_known else "".join(f"⟨{number}⟩" for number in run)
        for is_known, run in runs
    )


def _is_known(tokenizer: Tokenizer, number: int) -> bool:
    try:
        tokenizer.decode([number])
    except VocabularyError:
        return False
    return True
