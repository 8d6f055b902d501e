"""Token caches for pretraining: shards per split, and meta.json with the totals.

    fineweb_edu/meta.json                token_dtype "uint16-le", vocab_size, train_tokens, …
    fineweb_edu/train/shard_00000.bin    …
    fineweb_edu/val/shard_00000.bin      …

The totals of meta.json are checked when the cache is opened, so a lost or cut
shard shows at once. There is no document index; `eos_id` finds documents by
their end token.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, LayoutError
from tokenreel.layouts.foreign import assemble, declare_dtype, require_bytes, token_file
from tokenreel.layouts.listing import Folder, list_folder
from tokenreel.layouts.metadata import Metadata, read_metadata
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.shard import Shard
from tokenreel.store.store import Store

NAME = "cache-pretrain"
META_NAME = "meta.json"
SHARD_FILE = re.compile(r"shard_[0-9]+\.bin")


def fits(path: Path) -> str | None:
    """Say why a path is not a pretraining cache; None if it is one."""
    if not path.is_dir():
        return "not a folder"
    if not (path / META_NAME).is_file():
        return f"no {META_NAME}"
    folders = _split_folders(path)
    # A cache that was announced and never built has its folders, and nothing in them.
    looks_right = any(not f.files or f.matching(SHARD_FILE) for f in folders.values())
    return None if looks_right else "no train/shard_*.bin or val/shard_*.bin"


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open a pretraining cache: one stat per shard."""
    if not path.is_dir():
        raise LayoutError("not a folder", where=path)
    metadata = read_metadata(path)
    files = {
        name: {file: folder.files[file] for file in folder.matching(SHARD_FILE)}
        for name, folder in _split_folders(path).items()
    }
    sizes = {path / name / file: size for name in files for file, size in files[name].items()}
    if not sizes:
        raise DamageError(
            "the cache has no shards",
            where=path,
            expected="train/shard_*.bin or val/shard_*.bin",
            remedy="build the cache",
        )
    for file, size in sizes.items():
        require_bytes(file, size)
    declared = declare_dtype(options, metadata, sizes=sizes, root=path)
    shards = {
        name: [
            _shard(path, f"{name}/{file}", size, declared.dtype, options.mode)
            for file, size in found.items()
        ]
        for name, found in files.items()
        if found
    }
    _check_totals(path, metadata, shards)
    return assemble(
        path,
        layout=NAME,
        root=path,
        declared=declared,
        shards=shards,
        options=options,
        metadata=metadata,
    )


def _split_folders(path: Path) -> dict[str, Folder]:
    return {name: list_folder(path / name) for name in list_folder(path).split_folders}


def _shard(root: Path, name: str, size: int, dtype: np.dtype, mode: str) -> Shard:
    return Shard(name=name, token_file=token_file(root / name, size, dtype), mode=mode)


def _check_totals(path: Path, metadata: Metadata, shards: dict[str, list[Shard]]) -> None:
    for name in {*shards, "train", "val"}:
        declared = metadata.count(f"{name}_tokens")
        actual = sum(shard.num_tokens for shard in shards.get(name, []))
        if declared is not None and declared != actual:
            raise DamageError(
                f"{name}/ does not hold as many tokens as {META_NAME} declares",
                where=path / name,
                expected=f"{declared:,} tokens",
                actual=f"{actual:,} tokens in {len(shards.get(name, [])):,} shards",
                remedy="restore the missing shards or build the cache again",
            )
