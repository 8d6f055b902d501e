"""Write the token caches of contract 002.

    pretrain   train/shard_00000.bin …, val/…      linked from a native store's splits, or
                                                   copied from a range of one split's tokens
    sft        train_tokens.bin, train_idx.npy, val_…
    both       meta.json, last

Tokens are uint16. The shards of a native store are shards of a cache as they are,
so they are hard links where the file system has them, and cost nothing. Of chats
8 bytes per example are held in memory, until the index is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import FormatError, WriteError
from tokenreel.filesystem import FileSystem
from tokenreel.layouts.cache_pretrain import META_NAME
from tokenreel.layouts.cache_sft import (
    INDEX_DTYPE,
    INDEX_SUFFIX,
    TOKEN_DTYPE,
    TOKENS_SUFFIX,
)
from tokenreel.layouts.npy import npy_header
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.narrow import narrowed
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split

SPLITS = ("train", "val")
COPY_TOKENS = 2 * 1024 * 1024  # 4 MiB at a time


def write_pretrain_shards(
    folder: Path, splits: Mapping[str, Split], *, filesystem: FileSystem
) -> None:
    """Give `folder` the shards of a cache; a split that is not there gets an empty folder."""
    for name in SPLITS:
        filesystem.make_dir(folder / name)
        shards = splits[name].shards if name in splits else ()
        for number, shard in enumerate(shards):
            _require_uint16(shard)
            shard.token_file.check_size()
            target = folder / name / f"shard_{number:05d}.bin"
            _link(shard.token_file.path, target, filesystem)


def write_token_shards(
    folder: Path,
    split: Split,
    bounds: tuple[int, int],
    *,
    shard_bytes: int,
    filesystem: FileSystem,
) -> None:
    """Copy tokens start to stop of a split into shards of shard_bytes; the last may be smaller.

    No tokens give an empty folder.
    """
    filesystem.make_dir(folder)
    for shard in split.shards:
        _require_uint16(shard)
    start, stop = bounds
    tokens_per_shard = shard_bytes // TOKEN_DTYPE.itemsize
    for number, first in enumerate(range(start, stop, tokens_per_shard)):
        last = min(first + tokens_per_shard, stop)
        with filesystem.create(folder / f"shard_{number:05d}.bin") as file:
            for begin in range(first, last, COPY_TOKENS):
                file.write(split.read(begin, min(begin + COPY_TOKENS, last)))
            file.sync()


def _require_uint16(shard: Shard) -> None:
    source = shard.token_file
    if source.dtype != TOKEN_DTYPE or source.offset:
        raise FormatError(
            "the tokens of a cache are uint16",
            where=source.path,
            expected="uint16",
            actual=source.dtype.name,
            remedy='convert the store first ("tokenreel convert … --out-dtype uint16")',
        )


def _link(source: Path, target: Path, filesystem: FileSystem) -> None:
    try:
        filesystem.link(source, target)
    except WriteError:
        # Another file system, or one without links: what else may be wrong, copying will tell.
        with filesystem.create(target) as file:
            file.append_file(source)
            file.sync()


class SftCacheWriter:
    """Append chats to `*_tokens.bin`; `finish` adds the offsets, without an end."""

    def __init__(self, folder: Path, *, vocab_size: int, filesystem: FileSystem) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._filesystem = filesystem
        self._offsets: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
        self._tokens = {
            name: filesystem.create(folder / f"{name}{TOKENS_SUFFIX}") for name in SPLITS
        }

    def add(self, documents: DocumentBatch, *, split: str) -> None:
        """Append documents to a split."""
        tokens = self._tokens[split]
        base = tokens.num_bytes // TOKEN_DTYPE.itemsize
        place = f"split {split}, ids from token {base:,} on"
        for ids in narrowed(documents.ids, TOKEN_DTYPE, limit=self._vocab_size, where=place):
            tokens.write(ids)
        self._offsets[split].append(documents.offsets[:-1] + base)

    def finish(self) -> None:
        """Write the offsets and make all files durable."""
        for name in SPLITS:
            self._tokens[name].finish()
            offsets = np.concatenate([np.empty(0, INDEX_DTYPE), *self._offsets[name]])
            with self._filesystem.create(self._folder / f"{name}{INDEX_SUFFIX}") as index:
                index.write(npy_header(len(offsets), INDEX_DTYPE))
                index.write(offsets.astype(INDEX_DTYPE, copy=False))
                index.sync()

    def close(self) -> None:
        """Let go of all files."""
        for file in self._tokens.values():
            file.close()


def meta_bytes(meta: Mapping[str, Any]) -> bytes:
    """Return the bytes of meta.json: keys sorted, two spaces, one newline at the end.

    >>> meta_bytes({"seed": 1})
    b'{\\n  "seed": 1\\n}\\n'
    """
    text = json.dumps(meta, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def write_meta(folder: Path, meta: Mapping[str, Any], *, filesystem: FileSystem) -> None:
    """Write meta.json into the folder of a cache, whole or not at all."""
    filesystem.write_whole(folder / META_NAME, meta_bytes(meta))
