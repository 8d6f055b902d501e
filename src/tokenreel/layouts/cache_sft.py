"""Token caches for supervised fine-tuning: examples end to end, and where each starts.

    dolly15k/train_tokens.bin    uint16 (or what meta.json or the caller declares)
    dolly15k/train_idx.npy       int64 offsets, one per example: the end is inferred
    dolly15k/val_…               the same
    dolly15k/meta.json           optional: token_dtype, vocab_size, train_examples, train_tokens, …

If meta.json counts one example less than there are offsets, and the last offset
is the end of the tokens, then that one is taken for what it is: an end mark. Any
other disagreement is an error. Nothing but train_tokens in meta.json, which our own caches
have, tells that the end of the last example is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, FormatError, LayoutError, MissingFileError
from tokenreel.layouts.foreign import Declared, assemble, token_file
from tokenreel.layouts.listing import BROKEN, SPLIT_NAMES, list_folder
from tokenreel.layouts.metadata import Metadata, read_metadata
from tokenreel.layouts.npy import read_npy
from tokenreel.store.document_index import DocumentIndex, Offsets, Starts
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.store import Store

logger = logging.getLogger(__name__)

NAME = "cache-sft"
TOKENS_SUFFIX, INDEX_SUFFIX = "_tokens.bin", "_idx.npy"
TOKEN_DTYPE = np.dtype("<u2")
INDEX_DTYPE = np.dtype("<i8")


def fits(path: Path) -> str | None:
    """Say why a path is not a fine-tuning cache; None if it is one."""
    if not path.is_dir():
        return "not a folder"
    if _split_names(path):
        return None
    return f"no train{TOKENS_SUFFIX} with train{INDEX_SUFFIX}"


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open a fine-tuning cache: a stat and a header per split; small indexes are checked."""
    names = _split_names(path) if path.is_dir() else []
    if not names:
        raise LayoutError("not a fine-tuning cache", where=path, expected=f"*{TOKENS_SUFFIX}")
    metadata = read_metadata(path)
    declared = _declare(options, metadata)
    sizes = list_folder(path).files
    shards = {
        name: [_shard(path, name, sizes, metadata, declared.dtype, options.mode)] for name in names
    }
    for name in ("train", "val"):
        if name not in shards and metadata.count(f"{name}_examples"):
            _require(path / f"{name}{TOKENS_SUFFIX}", BROKEN)
    return assemble(
        path,
        layout=NAME,
        root=path,
        declared=declared,
        shards=shards,
        options=options,
        metadata=metadata,
    )


def _split_names(path: Path) -> list[str]:
    files = list_folder(path).files
    return [
        name
        for name in SPLIT_NAMES
        if f"{name}{TOKENS_SUFFIX}" in files or f"{name}{INDEX_SUFFIX}" in files
    ]


def _declare(options: OpenOptions, metadata: Metadata) -> Declared:
    if options.dtype is not None:
        return Declared(dtype=options.dtype, source="argument")
    if metadata.dtype is not None and metadata.path is not None:
        return Declared(dtype=metadata.dtype, source=metadata.path.name)
    return Declared(dtype=TOKEN_DTYPE, source="layout")


def _require(path: Path, size: int) -> int:
    if size == BROKEN:
        raise MissingFileError("the file is missing", where=path, remedy="restore the file")
    return size


def _shard(
    root: Path,
    name: str,
    sizes: Mapping[str, int],
    metadata: Metadata,
    dtype: np.dtype,
    mode: str,
) -> Shard:
    tokens_path, index_path = root / f"{name}{TOKENS_SUFFIX}", root / f"{name}{INDEX_SUFFIX}"
    size = _require(tokens_path, sizes.get(tokens_path.name, BROKEN))
    index = read_npy(index_path, _require(index_path, sizes.get(index_path.name, BROKEN)))
    if index.dtype != INDEX_DTYPE:
        raise FormatError(
            "wrong dtype of the offsets",
            where=index_path,
            expected="int64",
            actual=index.dtype,
            remedy="build the cache again",
        )
    # A split may hold no example at all; tokens without an example are damage, and found below.
    empty = ArrayFile(path=tokens_path, dtype=dtype, count=0)
    tokens = empty if size == index.count == 0 else token_file(tokens_path, size, dtype)
    _check_total(tokens, metadata.count(f"{name}_tokens"))
    examples = metadata.count(f"{name}_examples")
    count = _count_examples(index, tokens, examples)
    return Shard(
        name=tokens_path.name,
        token_file=tokens,
        index_file=IndexFile(
            path=index_path,
            count=count,
            load=lambda: _load_index(index, tokens, count, mode),
            is_mapped=mode == "mmap",
        ),
        mode=mode,
    )


def _check_total(tokens: ArrayFile, declared: int | None) -> None:
    """Raise DamageError for tokens that meta.json counts otherwise: the last example has no end."""
    if declared is not None and declared != tokens.count:
        raise DamageError(
            "the file does not hold as many tokens as meta.json declares",
            where=tokens.path,
            expected=f"{declared:,} tokens",
            actual=f"{tokens.count:,} tokens",
            remedy="restore the file or build the cache again",
        )


def _count_examples(index: ArrayFile, tokens: ArrayFile, examples: int | None) -> int:
    """Return how many examples the offsets stand for: all of them, or all but an end mark."""
    last = int(index.read(index.count - 1, index.count)[0]) if index.count else None
    if examples in (None, index.count):
        if examples is None and last == tokens.count:
            logger.warning(
                "%s: the last offset is the end of the tokens, so the last example is empty; "
                "if it is an end mark, say so by train_examples in meta.json",
                index.path,
            )
        return index.count
    if examples == index.count - 1 and last == tokens.count:
        return index.count - 1
    raise DamageError(
        "the number of offsets is not the number of examples that meta.json declares",
        where=index.path,
        expected=examples,
        actual=index.count,
        remedy="restore the file or build the cache again",
    )


def _load_index(index: ArrayFile, tokens: ArrayFile, count: int, mode: str) -> DocumentIndex:
    offsets = index.whole(mode)
    first = int(offsets[0]) if len(offsets) else tokens.count
    if first != 0 and tokens.count:
        raise DamageError(
            "the offsets do not cover the tokens from the first on",
            where=index.path,
            expected="a first offset of 0",
            actual=first if len(offsets) else "no offsets",
            remedy="restore the file or build the cache again",
        )
    return Starts(offsets, tokens.count) if count == index.count else Offsets(offsets)
