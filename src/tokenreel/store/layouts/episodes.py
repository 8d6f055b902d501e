"""Episode folders: tokens, an optional mask, and where each episode lies.

    chats/train/tokens.bin      uint32 (or what the caller declares)
    chats/train/mask.bin        optional; uint8 or float32, by its size
    chats/train/episodes.idx    uint64 pairs: start, length
    chats/val/…                 the same

A split may be cut into `shard_*/` folders of three such files, and a folder that
has the files itself is the split "train". Episodes are in order and do not
overlap; tokens between them belong to no document. The mask comes out as weights.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, FormatError, LayoutError
from tokenreel.store.arrays import ArrayFile
from tokenreel.store.documents import DocumentIndex, Pairs
from tokenreel.store.layouts.foreign import Declared, assemble
from tokenreel.store.layouts.listing import BROKEN, Folder, list_folder
from tokenreel.store.layouts.metadata import read_metadata
from tokenreel.store.manifest import SPLIT_NAME
from tokenreel.store.options import OpenOptions
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.store import Store

NAME = "episodes"
TOKENS, MASK, INDEX = "tokens.bin", "mask.bin", "episodes.idx"
TOKEN_DTYPE = np.dtype("<u4")
PAIR_BYTES = 16
SHARD_FOLDER = re.compile(r"shard_.*")


def fits(path: Path) -> str | None:
    """Say why a path is not an episode folder; None if it is one."""
    if not path.is_dir():
        return "not a folder"
    return None if _splits(path) else f"no {TOKENS} with {INDEX}, here or in train/ or val/"


def open_layout(path: Path, options: OpenOptions, *, masks: bool = True) -> Store:
    """Open an episode folder: a listing per shard; small indexes are checked.

    `masks` False leaves the masks alone, be they there or damaged.
    """
    splits = _splits(path) if path.is_dir() else {}
    if not splits:
        raise LayoutError("not an episode folder", where=path, expected=f"{TOKENS} and {INDEX}")
    if options.dtype is None:
        declared = Declared(dtype=TOKEN_DTYPE, source="layout")
    else:
        declared = Declared(dtype=options.dtype, source="argument")
    shards = {
        name: [_shard(folder, path, declared.dtype, options.mode, masks) for folder in folders]
        for name, folders in splits.items()
    }
    for split in shards.values():
        _check_masks(split)
    return assemble(
        path,
        layout=NAME,
        root=path,
        declared=declared,
        shards=shards,
        options=options,
        metadata=read_metadata(path),
    )


def _splits(path: Path) -> dict[str, list[Folder]]:
    """Return the shard folders of each split; empty where nothing looks like episodes."""
    root = list_folder(path)
    here = _shard_folders(root)
    if INDEX in root.files or (TOKENS in root.files and MASK in root.files):
        return {"train": here or [root]}
    if any(_is_episodes(folder) for folder in here if folder is not root):
        return {"train": here}
    splits = {}
    for name in root.folders:
        if SPLIT_NAME.match(name) and not SHARD_FOLDER.fullmatch(name):
            folders = _shard_folders(list_folder(path / name))
            if any(_is_episodes(folder) for folder in folders):
                splits[name] = folders
    return splits


def _shard_folders(folder: Folder) -> list[Folder]:
    """Return the folder itself, or its shard_* folders if it has some."""
    names = [name for name in folder.folders if SHARD_FOLDER.fullmatch(name)]
    if not names:
        return [folder]
    if _is_episodes(folder):
        raise FormatError(
            f"episodes lie both here and in {names[0]}/, so it is not clear which are meant",
            where=folder.path,
            remedy="remove one of them, or open the one that is meant",
        )
    return [list_folder(folder.path / name) for name in names]


def _is_episodes(folder: Folder) -> bool:
    return TOKENS in folder.files or INDEX in folder.files


def _shard(folder: Folder, root: Path, dtype: np.dtype, mode: str, masks: bool) -> Shard:
    tokens = _array(folder, TOKENS, dtype)
    index = _array(folder, INDEX, np.dtype("<u8"), PAIR_BYTES)
    name = folder.path.relative_to(root).as_posix()
    return Shard(
        name=TOKENS if name == "." else f"{name}/{TOKENS}",
        token_file=tokens,
        index_file=IndexFile(
            path=index.path, count=index.count // 2, load=lambda: _load_index(index, mode)
        ),
        weight_file=_mask(folder, tokens) if masks else None,
        mode=mode,
    )


def _array(folder: Folder, name: str, dtype: np.dtype, record_bytes: int = 0) -> ArrayFile:
    """Return a file of the shard, which must be there and consist of whole records."""
    path, size = folder.path / name, folder.files.get(name, BROKEN)
    record_bytes = record_bytes or dtype.itemsize
    if size == BROKEN or size % record_bytes:
        raise DamageError(
            "the file is missing" if size == BROKEN else f"the file ends at byte {size:,}, amid it",
            where=path,
            expected=f"a multiple of {record_bytes} bytes",
            actual=None if size == BROKEN else f"{size:,} bytes",
            remedy="restore the file",
        )
    return ArrayFile(path=path, dtype=dtype, count=size // dtype.itemsize)


def _mask(folder: Folder, tokens: ArrayFile) -> ArrayFile | None:
    size = folder.files.get(MASK)
    if size is None:
        return None
    for dtype in (np.dtype(np.uint8), np.dtype("<f4")):
        if size == tokens.count * dtype.itemsize:
            return ArrayFile(path=folder.path / MASK, dtype=dtype, count=tokens.count)
    raise DamageError(
        "the mask does not fit the tokens",
        where=folder.path / MASK,
        expected=f"{tokens.count:,} bytes (uint8) or {4 * tokens.count:,} bytes (float32)",
        actual=f"{size:,} bytes",
        remedy="restore the file",
    )


def _check_masks(shards: list[Shard]) -> None:
    """A mask that is there for some shards only would silently train on the rest."""
    without = [shard for shard in shards if shard.weight_file is None]
    if without and len(without) < len(shards):
        raise DamageError(
            f"the mask is missing, but {len(shards) - len(without)} other shards have one",
            where=without[0].token_file.path.with_name(MASK),
            remedy="restore the file",
        )


def _load_index(index: ArrayFile, mode: str) -> DocumentIndex:
    values = index.map() if mode == "mmap" else index.read(0, index.count)
    return Pairs(values.reshape(-1, 2))
