"""Validate a folder of token shards and say how to train on it (contract 003).

The answer comes from the same functions that the loader calls, with the same arguments the
printed flags carry, so the two cannot disagree. Flags of keys that the contract's `[data]`
section does not have (CONTRACT_KEYS) are for our loader alone.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tokenreel.dropin.mapped.token_files import open_flat_files
from tokenreel.feed.plain_labels import without_answers
from tokenreel.inspect.verify import check_foreign_ids
from tokenreel.layouts import flat
from tokenreel.layouts.open_store import LAYOUTS, open_store
from tokenreel.store.open_options import check_vocab_size
from tokenreel.store.split import Split
from tokenreel.store.store import Store

CONTRACT_KEYS = ("dataset_path", "file_pattern", "pack_sequences", "tokenizer_path")


def prepare(
    path: str | PathLike[str],
    *,
    dtype: str | None = None,
    vocab_size: int | None = None,
    file_pattern: str | None = None,
) -> dict[str, Any]:
    """Open the folder as the loader will and return the facts and the `--data.*` flags."""
    store = _open(Path(path), dtype=dtype, vocab_size=vocab_size, file_pattern=file_pattern)
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


def _open(
    path: Path, *, dtype: str | None, vocab_size: int | None, file_pattern: str | None
) -> Store:
    """Open flat files each by itself, as the loader does; any other layout as a store."""
    layout = next((module for module in LAYOUTS if module.fits(path) is None), None)
    pattern = flat.own_pattern(path, file_pattern) if layout is flat and path.is_dir() else None
    if pattern is None:
        store = open_store(path, dtype=dtype, vocab_size=vocab_size, file_pattern=file_pattern)
        return without_answers(store)
    check_vocab_size(vocab_size)
    return open_flat_files(path, pattern, dtype=dtype, vocab_size=vocab_size)


def data_flags(store: Store, *, declared_dtype: str | None = None) -> list[str]:
    """Return the exact flags that make our loader read this store as it was read here."""
    paths = [shard.token_file.path for split in store.splits.values() for shard in split.shards]
    suffix = Counter(path.suffix for path in paths).most_common(1)[0][0]
    folder = paths[0].parent if len({path.parent for path in paths}) == 1 else store.path
    flags = [f"--data.dataset_path={folder}", f"--data.file_pattern=*{suffix}"]
    dtypes = {shard.token_file.dtype for split in store.splits.values() for shard in split.shards}
    if declared_dtype or (store.dtype_source == "file size" and len(dtypes) == 1):
        flags.append(f"--data.dtype={store.dtype.name}")
    tokenizer = _tokenizer_name(store)
    if tokenizer:
        flags.append(f"--data.tokenizer_path={tokenizer}")
    return [shlex.quote(flag) for flag in flags]


def contract_flags(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags that the contract's `[data]` section knows, and the others.

    >>> contract_flags(["--data.dataset_path=t", "--data.dtype=uint16"])
    (['--data.dataset_path=t'], ['--data.dtype=uint16'])
    """
    keys = tuple(f"--data.{key}=" for key in CONTRACT_KEYS)
    known = [flag for flag in flags if flag.lstrip("'").startswith(keys)]
    return known, [flag for flag in flags if flag not in known]


def _scan_ids(split: Split, store: Store) -> None:
    for shard in split.shards:
        for start in range(0, shard.num_tokens, 1 << 20):
            ids = shard.read(start, min(start + (1 << 20), shard.num_tokens))
            check_foreign_ids(store, ids, Path(shard.token_file.path), start)


def _tokenizer_name(store: Store) -> str | None:
    if store.tokenizer is None:
        return None
    name = store.tokenizer.get("path") or store.tokenizer.get("name")
    return None if name is None else str(name)
