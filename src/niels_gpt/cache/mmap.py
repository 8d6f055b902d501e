"""Open the files of a cache: mapped, checked, never loaded.

The dtype is uint16 and is never guessed. A manifest.json or meta.json above the shards,
or beside the examples, that declares another one is an error, and so is a file that is
empty or ends in the middle of a token.
"""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import DamageError, FormatError
from tokenreel.store.arrays import ArrayFile
from tokenreel.store.documents import DocumentIndex, Offsets, Starts, check_index
from tokenreel.store.door import open_store
from tokenreel.store.layouts.cache_pretrain import META_NAME
from tokenreel.store.layouts.cache_sft import (
    INDEX_DTYPE,
    INDEX_SUFFIX,
    TOKEN_DTYPE,
    TOKENS_SUFFIX,
)
from tokenreel.store.layouts.foreign import token_file
from tokenreel.store.layouts.metadata import read_metadata
from tokenreel.store.layouts.npy import read_npy
from tokenreel.store.manifest import MANIFEST_NAME
from tokenreel.store.split import Split
from tokenreel.store.store import Store

SHARD_PATTERN = "shard_*.bin"


def open_shards(shards_dir: str) -> Split:
    """Return the shards of a folder: of a cache, of a native store, or bare `shard_*.bin`."""
    folder = Path(shards_dir).resolve()
    store = _open_around(folder)
    if store.dtype != TOKEN_DTYPE:
        raise FormatError(
            f"the dtype of these shards is declared by {store.dtype_source}, and is not uint16",
            where=folder,
            expected="uint16",
            actual=store.dtype.name,
            remedy='convert the store (tokenreel convert --dtype "uint16")',
        )
    for split in store.splits.values():
        if split.shards[0].token_file.path.resolve().parent == folder:
            return split
    raise _no_shards(folder)


def _open_around(folder: Path) -> Store:
    parent = folder.parent
    if (parent / MANIFEST_NAME).is_file():
        return open_store(parent, layout="native")
    if (parent / META_NAME).is_file():
        declared = read_metadata(parent).dtype is not None
        return open_store(parent, layout="cache-pretrain", dtype=None if declared else "uint16")
    if not any(folder.glob(SHARD_PATTERN)):
        raise _no_shards(folder)
    return open_store(folder, layout="flat", dtype="uint16", file_pattern=SHARD_PATTERN)


def _no_shards(folder: Path) -> DamageError:
    return DamageError(
        "there are no shards here", where=folder, expected=SHARD_PATTERN, remedy="build the cache"
    )


def open_examples(tokens_path: str, idx_path: str) -> tuple[ArrayFile, DocumentIndex]:
    """Return the tokens of a fine-tuning cache and its index, checked from end to end.

    The offsets have no end: the last example ends where the tokens do. An offset that
    is the end itself is an end mark only if meta.json counts one example less.
    """
    tokens_file, index_path = Path(tokens_path), Path(idx_path)
    _refuse_other_dtype(tokens_file)
    tokens = token_file(tokens_file, _size(tokens_file), TOKEN_DTYPE)
    index = read_npy(index_path, _size(index_path))
    if index.dtype != INDEX_DTYPE or index.count == 0:
        raise FormatError(
            "these are no offsets of examples",
            where=index_path,
            expected="one int64 or more",
            actual=f"{index.count:,} of {index.dtype.name}",
            remedy="build the cache again",
        )
    documents = _documents(index, tokens)
    check_index(documents, num_tokens=tokens.count, where=index_path)
    return tokens, documents


def _documents(index: ArrayFile, tokens: ArrayFile) -> DocumentIndex:
    offsets = index.map()
    declared = _declared_examples(tokens.path, index.path)
    if int(offsets[0]) != 0 or declared not in (None, index.count, index.count - 1):
        raise DamageError(
            "the offsets do not start at 0, or are not as many as meta.json counts examples",
            where=index.path,
            expected=f"{'some' if declared is None else declared} offsets from 0 on",
            actual=f"{index.count:,} from {int(offsets[0]):,} on",
            remedy="restore the file or build the cache again",
        )
    if int(offsets[-1]) < tokens.count:
        return Starts(offsets, tokens.count)
    if declared == index.count - 1:
        return Offsets(offsets)
    raise DamageError(
        "the last offset is not before the end of the tokens: an empty example, or an end mark",
        where=index.path,
        expected=f"< {tokens.count:,}",
        actual=int(offsets[-1]),
        remedy="leave out the end mark: the index of a cache has one offset per example",
    )


def _declared_examples(tokens: Path, index: Path) -> int | None:
    name = tokens.name.removesuffix(TOKENS_SUFFIX)
    if (tokens.name, index.name) != (name + TOKENS_SUFFIX, name + INDEX_SUFFIX):
        return None
    return read_metadata(tokens.parent).count(f"{name}_examples")


def _refuse_other_dtype(tokens: Path) -> None:
    metadata = read_metadata(tokens.parent)
    if metadata.dtype not in (None, TOKEN_DTYPE):
        raise FormatError(
            "the tokens of a cache are uint16",
            where=metadata.path,
            expected="uint16",
            actual=metadata.dtype,
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DamageError(
            f"cannot be read: {error.strerror}", where=path, remedy="build the cache"
        ) from error
