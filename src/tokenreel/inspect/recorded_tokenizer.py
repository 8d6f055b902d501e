"""The tokenizer of a store, found by what the store records of it.

A store records the name and the fingerprint of its tokenizer, no path. A file of that name is
looked for beside the store, in it, and in the current folder; it is taken only if its fingerprint
is the recorded one, so a store cannot make anybody decode with something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenreel.errors import TokenreelError
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

REMEDY = "give the tokenizer that it was built with, or insist with force_tokenizer"


def tokenizer_of(
    store: Store, given: str | Tokenizer | None = None, *, force: bool = False
) -> Tokenizer | None:
    """Return the tokenizer that is given, else the recorded one; None where that is not at hand.

    MismatchError if the given one is not that of the store, unless `force`.
    """
    if given is None:
        return _recorded(store)
    tokenizer: Tokenizer = load_tokenizer(given)
    if not force:
        store.check_tokenizer(tokenizer.fingerprint, remedy=REMEDY)
    return tokenizer


def _recorded(store: Store) -> Tokenizer | None:
    for candidate in _candidates(store):
        try:
            tokenizer = load_tokenizer(candidate)
        except (TokenreelError, OSError, ValueError):
            continue
        if tokenizer.fingerprint == store.tokenizer_fingerprint:
            return tokenizer
    return None


def _candidates(store: Store) -> Iterator[str]:
    """Yield what may be the recorded tokenizer."""
    recorded = store.tokenizer or {}
    if store.tokenizer_fingerprint is None:
        return
    name = recorded.get("name")
    if "byte" in (name, recorded.get("kind")):
        yield "byte"
    name = Path(name).name if isinstance(name, str) else ""
    folder = store.path.absolute()
    for place in (folder.parent, folder, Path.cwd()) if name else ():
        if (place / name).exists():
            yield str(place / name)
