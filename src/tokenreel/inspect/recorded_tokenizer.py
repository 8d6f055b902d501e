"""The tokenizer of a store, found by what the store records of it.

A store records the name and the fingerprint of its tokenizer, no path. A file or folder of that
name is looked for beside the store, in it, and in the current folder; it is taken only if its
fingerprint is the recorded one, so a store cannot make anybody decode with something else. Nobody
chose these files but who made the store: a name that leads elsewhere is not followed, a file that
is too large or no regular one is not opened, and whatever fails in one, the tokenizer is not at
hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeGuard

from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

REMEDY = "give the tokenizer that it was built with, or insist with force_tokenizer"
LARGEST_FILE_BYTES = 1 << 28  # the largest tokenizers that are in use have some 40 MB
LONGEST_NAME_BYTES = 255  # which file systems allow
MOST_FILES = 1_000  # of a folder: those of models have dozens
# What folders of models have beside their tokenizer, which no tokenizer reads.
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}


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
        except Exception:  # any of those of four libraries, for a file that is no tokenizer
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
    if not _is_plain(name):
        return
    folder = store.path.absolute()
    for place in (folder.parent, folder, Path.cwd()):
        if _is_readable(place / name):
            yield str(place / name)


def _is_plain(name: object) -> TypeGuard[str]:
    """Tell whether a name is that of a file in a folder, as builds record it, and no path."""
    if not isinstance(name, str) or name in ("", ".", "..") or {*name} & {"/", "\\", "\0"}:
        return False
    return len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME_BYTES


def _is_readable(path: Path) -> bool:
    """Tell whether a regular file is small enough to be read, or all that a folder has to read."""
    try:
        if not path.is_dir():
            return _is_small(path)
        files = list(islice(path.iterdir(), MOST_FILES + 1))
        read = [file for file in files if file.suffix not in WEIGHTS and not file.is_dir()]
        return len(files) <= MOST_FILES and all(map(_is_small, read))
    except OSError:  # no permission, or gone by now
        return False


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= LARGEST_FILE_BYTES
