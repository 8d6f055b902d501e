"""Validate a folder of token shards and say how to train on it (contract 003).

The answer comes from the same `open_store` that the loader calls, with the same
arguments the printed flags carry, so the two cannot disagree.
"""

from __future__ import annotations

import shlex
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any

from tokenreel.store.door import open_store
from tokenreel.store.store import Store


def prepare(
    path: str | PathLike[str],
    *,
    dtype: str | None = None,
    vocab_size: int | None = None,
    file_pattern: str | None = None,
) -> dict[str, Any]:
    """Open the folder as the loader will and return the facts and the `--data.*` flags."""
    store = open_store(path, dtype=dtype, vocab_size=vocab_size, file_pattern=file_pattern)
    for split in store.splits.values():
        _scan_ids(split, store)
    shards = [shard for split in store.splits.values() for shard in split.shards]
    return {
        "path": str(store.path),
        "layout": store.layout,
        "shards": len(shards),
        "bytes": sum(shard.token_file.file_bytes for shard in shards),
        "tokens": store.num_tokens,
        "dtype": store.dtype.name,
        "dtype_source": store.dtype_source,
        "tokenizer": _tokenizer_name(store),
        "vocab_size": store.vocab_size,
        "flags": data_flags(store, declared_dtype=dtype),
    }


def data_flags(store: Store, *, declared_dtype: str | None = None) -> list[str]:
    """Return the exact flags that make a trainer read this store as it was read here."""
    paths = [shard.token_file.path for split in store.splits.values() for shard in split.shards]
    suffix = Counter(path.suffix for path in paths).most_common(1)[0][0]
    folder = paths[0].parent if len({path.parent for path in paths}) == 1 else store.path
    flags = [f"--data.dataset_path={folder}", f"--data.file_pattern=*{suffix}"]
    if declared_dtype or store.dtype_source == "file size":
        flags.append(f"--data.dtype={store.dtype.name}")
    tokenizer = _tokenizer_name(store)
    if tokenizer:
        flags.append(f"--data.tokenizer_path={tokenizer}")
    return [shlex.quote(flag) for flag in flags]


def _scan_ids(split: Any, store: Store) -> None:
    from tokenreel.inspect.verify import check_foreign_ids

    for shard in split.shards:
        for start in range(0, shard.num_tokens, 1 << 20):
            ids = shard.read(start, min(start + (1 << 20), shard.num_tokens))
            check_foreign_ids(store, ids, Path(shard.token_file.path), start)


def _tokenizer_name(store: Store) -> str | None:
    if store.tokenizer is None:
        return None
    name = store.tokenizer.get("path") or store.tokenizer.get("name")
    return None if name is None else str(name)
