"""What all foreign layouts share: the dtype rule, shards from files, the assembled store.

The dtype is declared by the argument, then by metadata or a file's header; only
where nothing declares it is it inferred from file sizes, and then said aloud. A
declared vocabulary is held against the ids at both ends of up to 16 shards per
split, because a wrong dtype shows in any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError, DamageError, FormatError, MissingFileError
from tokenreel.layouts.eos_scan import index_file, open_sidecar
from tokenreel.layouts.fingerprint import foreign_fingerprint
from tokenreel.layouts.listing import BROKEN, split_order
from tokenreel.layouts.metadata import Metadata
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.open_options import OpenOptions, check_edges, infer_dtype
from tokenreel.store.shard import Shard, check_mappable
from tokenreel.store.split import Split
from tokenreel.store.store import Store

logger = logging.getLogger(__name__)

# Indexes of up to this size in all are checked when a store is opened; of a larger store each
# is checked when it is first touched, before anything is sliced by it.
CHECKED_INDEX_BYTES = 64 * 1024 * 1024
CHECKED_SHARDS = 1024
EDGE_SHARDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A dtype and what declared it."""

    dtype: np.dtype
    source: str


def declare_dtype(
    options: OpenOptions, metadata: Metadata, *, sizes: Mapping[Path, int], root: Path
) -> Declared:
    """Return the dtype of headerless files: argument, then metadata, then their sizes."""
    if options.dtype is not None:
        return Declared(dtype=options.dtype, source="argument")
    if metadata.dtype is not None and metadata.path is not None:
        return Declared(dtype=metadata.dtype, source=metadata.path.name)
    return Declared(dtype=infer_dtype(dict(sizes), root=root), source="file size")


def agree_dtype(options: OpenOptions, headers: Mapping[Path, np.dtype]) -> Declared:
    """Return the one dtype that the headers of all files declare.

    An argument may change how the same bytes are read (int32 as uint32), not how many.
    """
    first, dtype = next(iter(headers.items()))
    for path, other in headers.items():
        if other != dtype:
            raise FormatError(
                "the files of one store must have one dtype",
                where=path,
                expected=f"{dtype.name} as in {first.name}",
                actual=other.name,
                remedy="choose files that belong together (file_pattern=…)",
            )
    if options.dtype is None:
        return Declared(dtype=dtype, source=first.name)
    if options.dtype.itemsize != dtype.itemsize:
        raise ConfigError(
            "the file's header declares another dtype",
            where=first,
            expected=dtype.name,
            actual=options.dtype.name,
        )
    return Declared(dtype=options.dtype, source="argument")


def token_file(path: Path, size: int, dtype: np.dtype) -> ArrayFile:
    """Return a headerless token file; an empty one, or one with part of a token, is damaged."""
    require_bytes(path, size)
    if size % dtype.itemsize:
        raise DamageError(
            f"the file ends in the middle of a token, at byte {size:,}",
            where=path,
            expected=f"a multiple of {dtype.itemsize} bytes ({dtype.name})",
            actual=f"{size:,} bytes",
            remedy="restore the file, or declare the right dtype",
        )
    return ArrayFile(path=path, dtype=dtype, count=size // dtype.itemsize)


def require_target(path: Path, size: int) -> None:
    """Raise MissingFileError for a link that leads nowhere."""
    if size == BROKEN:
        raise MissingFileError("the link leads nowhere", where=path, remedy="restore the file")


def require_bytes(path: Path, size: int) -> None:
    """Raise DamageError for a link that leads nowhere and for a file without a byte."""
    require_target(path, size)
    if size == 0:
        raise DamageError(
            "the shard is empty",
            where=path,
            expected="at least one token",
            actual="0 bytes",
            remedy="restore the file, or remove it if it should not be there",
        )


def assemble(
    path: Path,
    *,
    layout: str,
    root: Path,
    declared: Declared,
    shards: Mapping[str, Sequence[Shard]],
    options: OpenOptions,
    metadata: Metadata,
) -> Store:
    """Check the shards against what is declared and make the store of them."""
    vocab_size = options.vocab_size or metadata.vocab_size
    files = [shard for split in shards.values() for shard in split]  # as they are, not as scanned
    facts: dict[str, object] = {"layout": layout, "dtype": declared.dtype.name}
    if any(shard.index_file is None for split in shards.values() for shard in split):
        facts["eos_id"] = options.eos_id
    dtypes = {s.name: s.token_file.dtype.name for split in shards.values() for s in split}
    if len(set(dtypes.values())) > 1:  # the same bytes read by other dtypes are other tokens
        facts["dtypes"] = dtypes
    splits = {
        name: Split(name, _with_documents(shards[name], options, vocab_size))
        for name in split_order(shards)
    }
    check_mappable([shard for split in splits.values() for shard in split.shards], where=path)
    for split in splits.values():
        for shard in _spread(split.shards, EDGE_SHARDS):
            check_edges(shard.token_file, vocab_size, dtype_source=declared.source)
    _check_small_indexes(splits)
    return Store(
        path=path,
        layout=layout,
        dtype=declared.dtype,
        dtype_source=declared.source,
        splits=splits,
        make_fingerprint=lambda: foreign_fingerprint(root, files, facts=facts),
        vocab_size=vocab_size,
        tokenizer=metadata.tokenizer,
        metadata=metadata.content,
    )


def _with_documents(
    shards: Sequence[Shard], options: OpenOptions, vocab_size: int | None
) -> list[Shard]:
    """Find the documents of shards without an index by their end token, if that was asked for."""
    eos_id = options.eos_id
    if eos_id is None or all(shard.index_file is not None for shard in shards):
        return list(shards)
    limit = vocab_size or int(np.iinfo(shards[0].token_file.dtype).max) + 1
    if not 0 <= eos_id < limit:
        raise ConfigError("bad eos_id", expected=f"0 to {limit - 1:,}", actual=eos_id)
    sidecars = [open_sidecar(shard.token_file, eos_id) for shard in shards]
    if not any(sidecar.num_ends for sidecar in sidecars):
        logger.warning(
            "%s: the end token %d occurs nowhere, so each file is one document",
            shards[0].token_file.path.parent,
            eos_id,
        )
    return [
        replace(shard, index_file=index_file(sidecar, mode=shard.mode))
        for shard, sidecar in zip(shards, sidecars, strict=True)
    ]


def _spread(shards: Sequence[Shard], most: int) -> list[Shard]:
    """Return at most `most` shards, evenly spread, the first and the last among them."""
    if len(shards) <= most:
        return list(shards)
    return [shards[i * (len(shards) - 1) // (most - 1)] for i in range(most)]


def _check_small_indexes(splits: Mapping[str, Split]) -> None:
    shards = [shard for split in splits.values() for shard in split.shards if shard.index_file]
    if len(shards) > CHECKED_SHARDS:
        return
    indexes = [shard.index_file.path for shard in shards if shard.index_file is not None]
    if sum(path.stat().st_size for path in indexes) <= CHECKED_INDEX_BYTES:
        for shard in shards:
            _ = shard.documents
