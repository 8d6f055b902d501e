"""Parts of a token cache, opened by themselves: one folder of shards, one pair of files.

Mapped and checked, never loaded. The dtype is uint16 and is never guessed. A
manifest.json or meta.json above the shards, or beside the examples, that declares
another one is an error, and so is a file that is empty or ends in the middle of a token.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from tokenreel.errors import (
    ConfigError,
    DamageError,
    FormatError,
    MismatchError,
    MissingFileError,
    differing_fields,
)
from tokenreel.feed.plain_labels import without_answers
from tokenreel.layouts.cache_pretrain import META_NAME
from tokenreel.layouts.cache_sft import (
    INDEX_DTYPE,
    INDEX_SUFFIX,
    TOKEN_DTYPE,
    TOKENS_SUFFIX,
)
from tokenreel.layouts.foreign import token_file
from tokenreel.layouts.metadata import read_metadata
from tokenreel.layouts.npy import read_npy
from tokenreel.layouts.open_store import open_store
from tokenreel.store.document_index import DocumentIndex, Offsets, Starts
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.manifest import MANIFEST_NAME
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split
from tokenreel.store.store import Store

SHARD_PATTERN = "shard_*.bin"
ROLE_NAMES = ("sys", "usr", "asst")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialIds:
    """The ids of a chat format: all roles that are known, the assistant's, the end of a turn."""

    roles: tuple[int, ...]
    asst: int
    eot: int


def open_shards(shards_dir: str | Path) -> Split:
    """Return the shards of a folder: of a cache, of a native store, or bare `shard_*.bin`."""
    folder = Path(shards_dir).resolve()
    store = _open_around(folder)
    if store.dtype != TOKEN_DTYPE:
        raise FormatError(
            f"the dtype of these shards is declared by {store.dtype_source}, and is not uint16",
            where=folder,
            expected="uint16",
            actual=store.dtype.name,
            remedy='convert the store ("tokenreel convert … --out-dtype uint16")',
        )
    for split in store.splits.values():
        if split.shards[0].token_file.path.resolve().parent == folder:
            return split
    raise _no_shards(folder)


def _open_around(folder: Path) -> Store:
    parent = folder.parent
    if (parent / MANIFEST_NAME).is_file():
        return without_answers(open_store(parent, layout="native"))
    if (parent / META_NAME).is_file():
        declared = read_metadata(parent).dtype is not None
        return open_store(parent, layout="cache-pretrain", dtype=None if declared else "uint16")
    if not any(folder.glob(SHARD_PATTERN)):
        raise _no_shards(folder)
    return open_store(folder, layout="flat", dtype="uint16", file_pattern=SHARD_PATTERN)


def _no_shards(folder: Path) -> MissingFileError:
    return MissingFileError(
        "there are no shards here", where=folder, expected=SHARD_PATTERN, remedy="build the cache"
    )


def open_examples(tokens_file: str | Path, idx_file: str | Path) -> Split:
    """Return the examples of a fine-tuning cache as documents, their index checked.

    The offsets have no end: the last example ends where the tokens do. An offset that
    is the end itself is an end mark only if meta.json counts one example less.
    """
    tokens_path, index_path = Path(tokens_file), Path(idx_file)
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


def special_ids(folder: Path, *, eot_id: int, asst_id: int | None = None) -> SpecialIds:
    """Return the special ids of the cache in a folder: those of its meta.json, if there is one.

    An eot_id or asst_id that meta.json contradicts is a MismatchError. What meta.json does
    not say follows from the vocabulary of the original project, whose control tokens are
    neighbours in the order sys, usr, asst, eot; an asst_id found that way is a warning.
    An asst_id that is given and no neighbour of eot_id leaves the other roles unknown.
    """
    known = (read_metadata(folder).tokenizer or {}).get("special_token_ids") or {}
    wanted = {"eot": eot_id, "asst": asst_id}
    asked = {name: value for name, value in wanted.items() if value is not None and name in known}
    differing = differing_fields({name: known[name] for name in asked}, asked)
    if differing:
        raise MismatchError(
            "these are not the special tokens the cache was built with",
            where=folder,
            differing=differing,
        )
    if "asst" in known:
        roles = tuple(known[name] for name in ROLE_NAMES if name in known)
        return SpecialIds(roles=roles, asst=known["asst"], eot=eot_id)
    derived = eot_id - 1
    if asst_id is None:
        _warn_derived(folder, derived, eot_id)
    elif asst_id != derived:
        return SpecialIds(roles=(asst_id,), asst=asst_id, eot=eot_id)
    return SpecialIds(roles=(eot_id - 3, eot_id - 2, derived), asst=derived, eot=eot_id)


def _warn_derived(folder: Path, asst_id: int, eot_id: int) -> None:
    if asst_id < 0:
        raise ConfigError(
            "the id of the assistant's role is not known",
            where=folder,
            expected="special_token_ids in meta.json beside the tokens, or asst_id",
            remedy="pass asst_id=…",
        )
    warnings.warn(
        f"{folder}: no meta.json says which id is the assistant's; {asst_id} is taken, the id "
        f"before eot_id {eot_id}, as in the vocabulary of niels-gpt; pass asst_id=… if it is not",
        stacklevel=4,
    )


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
        kind = MissingFileError if isinstance(error, FileNotFoundError) else DamageError
        raise kind(
            f"cannot be read: {error.strerror}", where=path, remedy="build the cache"
        ) from error
