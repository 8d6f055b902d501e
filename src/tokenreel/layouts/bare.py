"""Bare tokens: `train.bin` and/or `val.bin`, or one .bin file, and nothing else.

The dtype comes from the argument, a metadata file if there happens to be one, or
the file sizes. A `meta.pkl` beside them is a pickle and is never opened. `eos_id`
finds documents by their end token.
"""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import ConfigError, LayoutError
from tokenreel.layouts.foreign import assemble, declare_dtype, require_bytes, token_file
from tokenreel.layouts.listing import SPLIT_NAMES, list_folder
from tokenreel.layouts.metadata import read_metadata
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.shard import Shard
from tokenreel.store.store import Store

NAME = "bare"


def fits(path: Path) -> str | None:
    """Say why a path is not bare tokens; None if it is."""
    if path.is_file():
        return None if path.suffix == ".bin" else "not a .bin file"
    if not path.is_dir():
        return "not a folder"
    names = [name for name in list_folder(path).files if name.endswith(".bin")]
    others = [name for name in names if name.removesuffix(".bin") not in SPLIT_NAMES]
    if not names or len(others) == len(names):
        return "no train.bin or val.bin"
    return f"{others[0]} beside train.bin or val.bin" if others else None


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open bare token files: one stat each."""
    if options.file_pattern is not None:
        raise ConfigError(
            "bare tokens are chosen by their names, not by file_pattern",
            where=path,
            remedy='open them as flat shards (layout="flat")',
        )
    root = path.parent if path.is_file() else path
    files = _files(path)
    for file, size in files.values():
        require_bytes(file, size)
    metadata = read_metadata(root)
    sizes = dict(files.values())
    declared = declare_dtype(options, metadata, sizes=sizes, root=path)
    shards = {
        name: [
            Shard(
                name=file.name,
                token_file=token_file(file, size, declared.dtype),
                mode=options.mode,
            )
        ]
        for name, (file, size) in files.items()
    }
    return assemble(
        path,
        layout=NAME,
        root=root,
        declared=declared,
        shards=shards,
        options=options,
        metadata=metadata,
    )


def _files(path: Path) -> dict[str, tuple[Path, int]]:
    if path.is_file():
        return {"train": (path, path.stat().st_size)}
    reason = fits(path)
    if reason is not None:
        raise LayoutError(f"not bare tokens: {reason}", where=path)
    files = list_folder(path).files
    return {
        name: (path / f"{name}.bin", files[f"{name}.bin"])
        for name in SPLIT_NAMES
        if f"{name}.bin" in files
    }
