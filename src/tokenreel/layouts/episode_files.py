"""Episode folders: tokens, an optional mask, and where each episode lies.

    chats/train/tokens.bin      uint32 (or what the caller declares)
    chats/train/mask.bin        optional; uint8 or float32, by its size
    chats/train/episodes.idx    uint64 pairs: start, length
    chats/val/…                 the same

A split may be cut into `shard_*/` folders of three such files, and a folder that
has the files itself is the split "train". Episodes are in order and do not
overlap; tokens between them belong to no document. The mask comes out as weights.

Contract 000's loader opens a folder by `open_for_loader`, which asks for less: the
index may be in any order, and a split may do without masks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, FormatError, MissingFileError, NoStoreError
from tokenreel.layouts.foreign import Declared, assemble
from tokenreel.layouts.listing import BROKEN, Folder, list_folder
from tokenreel.layouts.metadata import read_metadata
from tokenreel.store.document_index import DocumentIndex, Pairs
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.manifest import SPLIT_NAME
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split
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


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open an episode folder: a listing per shard; small indexes are checked."""
    splits = _splits_of(path)
    make_shard = partial(_shard, root=path, options=options, load_index=_load_index)
    shards = {name: list(map(make_shard, folders)) for name, folders in splits.items()}
    for split in shards.values():
        _check_masks(split)
        _check_indexes(split)
    return _store(path, shards, options)


def open_for_loader(path: Path, options: OpenOptions, *, masks: Collection[str]) -> Store:
    """Open an episode folder as contract 000 describes it.

    Masks are opened in the splits that `masks` names, and nowhere else; a split of which
    some shards have no mask is opened all the same, and has no weights then.
    """
    make_shard = partial(_shard, root=path, options=options, load_index=_load_any_order)
    shards = {
        name: [make_shard(folder, masked=name in masks) for folder in folders]
        for name, folders in _splits_of(path).items()
    }
    return _store(path, shards, options)


def mask_faults(path: Path, options: OpenOptions) -> dict[str, DamageError | None]:
    """Return what is wrong with the masks of each split; None where nothing is, or none is there.

    A mask that is missing is no fault: contract 000's batches have no mask then.
    """
    faults: dict[str, DamageError | None] = {}
    for name, folders in _splits_of(path).items():
        faults[name] = None
        try:
            for folder in folders:
                _mask(folder, _array(folder, TOKENS, _declared(options).dtype))
        except DamageError as error:
            faults[name] = error
    return faults


def _splits_of(path: Path) -> dict[str, list[Folder]]:
    """Return the shard folders of each split, or raise NoStoreError where there are none."""
    splits = _splits(path) if path.is_dir() else {}
    if not splits:
        raise NoStoreError("not an episode folder", where=path, expected=f"{TOKENS} and {INDEX}")
    return splits


def _declared(options: OpenOptions) -> Declared:
    if options.dtype is None:
        return Declared(dtype=TOKEN_DTYPE, source="layout")
    return Declared(dtype=options.dtype, source="argument")


def _store(path: Path, shards: dict[str, list[Shard]], options: OpenOptions) -> Store:
    return assemble(
        path,
        layout=NAME,
        root=path,
        declared=_declared(options),
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


def _shard(
    folder: Folder,
    *,
    root: Path,
    options: OpenOptions,
    load_index: Callable[[ArrayFile, str], DocumentIndex],
    masked: bool = True,
) -> Shard:
    tokens = _array(folder, TOKENS, _declared(options).dtype)
    index = _array(folder, INDEX, np.dtype("<u8"), PAIR_BYTES)
    name = folder.path.relative_to(root).as_posix()
    return Shard(
        name=TOKENS if name == "." else f"{name}/{TOKENS}",
        token_file=tokens,
        index_file=IndexFile(
            path=index.path,
            count=index.count // 2,
            load=partial(load_index, index, options.mode),
            is_mapped=options.mode == "mmap",
        ),
        weight_file=_mask(folder, tokens) if masked else None,
        mode=options.mode,
    )


def _array(folder: Folder, name: str, dtype: np.dtype, record_bytes: int = 0) -> ArrayFile:
    """Return a file of the shard, which must be there and consist of whole records."""
    path, size = folder.path / name, folder.files.get(name, BROKEN)
    record_bytes = record_bytes or dtype.itemsize
    if size == BROKEN or size % record_bytes:
        kind = MissingFileError if size == BROKEN else DamageError
        raise kind(
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


def _check_indexes(shards: list[Shard]) -> None:
    """Raise DamageError for an index without episodes beside tokens: it was cut to nothing."""
    for shard in shards:
        if shard.num_tokens and shard.index_file is not None and not shard.index_file.count:
            raise DamageError(
                f"the index is empty, but there are {shard.num_tokens:,} tokens beside it",
                where=shard.index_file.path,
                expected=f"{PAIR_BYTES} bytes for each episode",
                actual="0 bytes",
                remedy="restore the file",
            )


def _load_index(index: ArrayFile, mode: str) -> Pairs:
    return Pairs(index.whole(mode).reshape(-1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class PairsByStart:
    """Pairs of a file that is not in order, numbered by where they start.

    records: which pair of the file each document is, int64 [N].
    """

    pairs: np.ndarray
    records: np.ndarray

    def __len__(self) -> int:
        return len(self.records)

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return starts and stops."""
        return Pairs(self.pairs).bounds(self.records[numbers])


def _load_any_order(index: ArrayFile, mode: str) -> Pairs | PairsByStart:
    """Return the index as it is where it is in order, else by start: the store counts on that."""
    found = _load_index(index, mode)
    starts, lengths = found.pairs[:, 0], found.pairs[:, 1]
    # By length where starts are the same, so that an empty episode comes before the full one.
    same = (starts[:-1] == starts[1:]) & (lengths[:-1] <= lengths[1:])
    if ((starts[:-1] < starts[1:]) | same).all():
        return found
    return PairsByStart(found.pairs, records=np.lexsort((lengths, starts)))


def records_of(split: Split) -> np.ndarray:
    """Return which record of episodes.idx each document of a split is, int64 [documents].

    Records are counted on from shard to shard, as documents are.
    """
    records = np.arange(split.num_documents or 0)
    for first, shard in zip(split.document_starts[:-1], split.shards, strict=True):
        if isinstance(shard.documents, PairsByStart):
            records[first : first + len(shard.documents)] = first + shard.documents.records
    return records
