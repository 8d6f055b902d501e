"""Parts of a token cache, opened by themselves: one folder of shards, one pair of files.

Mapped and checked, never loaded. The dtype is uint16 and is never guessed. A
manifest.json or meta.json above the shards, or beside the examples, that declares
another one is an error, and so is a file that is empty or ends in the middle of a token.
"""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import (
    ConfigError,
    DamageError,
    FormatError,
    MismatchError,
    differing_fields,
)
from tokenreel.store.arrays import ArrayFile
from tokenreel.store.documents import DocumentIndex, Offsets, Starts
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
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split
from tokenreel.store.store import Store

SHARD_PATTERN = "shard_*.bin"


def open_shards(folder: Path) -> Split:
    """Return the shards of a folder: of a cache, of a native store, or bare `shard_*.bin`."""
    folder = folder.resolve()
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


def open_examples(tokens_path: Path, index_path: Path) -> Split:
    """Return the examples of a fine-tuning cache as documents, their index checked.

    The offsets have no end: the last example ends where the tokens do. An offset that
    is the end itself is an end mark only if meta.json counts one example less.
    """
    _refuse_other_dtype(tokens_path)
    tokens = token_file(tokens_path, _size(tokens_path), TOKEN_DTYPE)
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
    file = IndexFile(path=index_path, count=len(documents), load=lambda: documents)
    shard = Shard(name=tokens_path.name, token_file=tokens, index_file=file)
    _ = shard.documents  # this checks it
    return Split(tokens_path.name.removesuffix(TOKENS_SUFFIX), [shard])


def assistant_id(folder: Path, *, end_id: int, given: int | None) -> int:
    """Return the id of the assistant's role: that of meta.json in the folder, or the given one.

    A given one, or an end-of-turn id, that meta.json contradicts is a MismatchError;
    neither meta.json nor a given one is a ConfigError.
    """
    known = (read_metadata(folder).tokenizer or {}).get("special_token_ids") or {}
    wanted = {"eot": end_id, "asst": given}
    asked = {name: value for name, value in wanted.items() if value is not None and name in known}
    differing = differing_fields({name: known[name] for name in asked}, asked)
    if differing:
        raise MismatchError(
            "these are not the special tokens the cache was built with",
            where=folder,
            differing=differing,
        )
    found = known.get("asst", given)
    if not isinstance(found, int):
        raise ConfigError(
            "the id of the assistant's role is not known",
            where=folder,
            expected="special_token_ids in meta.json beside the tokens, or asst_id",
            remedy="pass asst_id=…",
        )
    return found


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
