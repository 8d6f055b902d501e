"""The files of contract 003, each opened by itself and with the dtype that is declared.

The order of files is that of their sorted paths, as the contract says. An .npy file is read
by its header. For a .bin file the first of these that there is wins:

    a store's manifest          where the folder is a store of ours, or a split of one
    the argument dtype
    the metadata                metadata.yaml or meta.json beside the files or above their split
    the size of the file        a multiple of 4: uint32, else uint16; a warning says so

A folder without such files whose train/ has some is opened as the store that it is.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tokenreel.config.paths import usable_path
from tokenreel.errors import NoFileError, NoStoreError
from tokenreel.feed.plain_labels import without_answers
from tokenreel.layouts.flat import open_files
from tokenreel.layouts.listing import SPLIT_NAMES
from tokenreel.layouts.metadata import read_metadata
from tokenreel.layouts.open_store import open_store
from tokenreel.store.manifest import MANIFEST_NAME
from tokenreel.store.open_options import OpenOptions, check_vocab_size, parse_dtype
from tokenreel.store.split import Split
from tokenreel.store.store import Store


def open_token_files(
    data_dir: str | PathLike[str],
    file_pattern: str,
    *,
    dtype: str | None = None,
    vocab_size: int | None = None,
) -> tuple[Store, Split]:
    """Return the files of a folder that match, as a store and as its one split."""
    check_vocab_size(vocab_size)
    folder = usable_path(data_dir)
    if not folder.is_dir():
        raise NoStoreError("there is no such folder", where=folder)
    found = _native(folder, file_pattern)
    if found is not None:
        return found
    store = open_flat_files(folder, file_pattern, dtype=dtype, vocab_size=vocab_size)
    return store, _by_path(store["train"])


def _native(folder: Path, file_pattern: str) -> tuple[Store, Split] | None:
    """Return a store of our own: the folder is one, or is a split of one."""
    for root, name in ((folder, "train"), (folder.parent, folder.name)):
        if (root / MANIFEST_NAME).is_file():
            if not Path("shard_00000.bin").match(file_pattern):
                raise NoFileError(
                    "file_pattern matches no shard of this store",
                    where=root,
                    expected="*.bin",
                    actual=repr(file_pattern),
                )
            store = without_answers(open_store(root, layout="native"))
            return store, _by_path(store[name])
    return None


def _by_path(split: Split) -> Split:
    return Split(split.name, sorted(split.shards, key=lambda shard: shard.token_file.path))


def open_flat_files(
    folder: Path, file_pattern: str, *, dtype: str | None, vocab_size: int | None
) -> Store:
    """Return the files of a folder that match, each opened by itself, or those of its train/."""
    metadata = read_metadata(folder)
    if metadata.path is None and folder.name in SPLIT_NAMES:
        metadata = read_metadata(folder.parent)
    options = OpenOptions(
        dtype=None if dtype is None else parse_dtype(dtype, where="dtype"),
        vocab_size=vocab_size,
        file_pattern=file_pattern,
    )
    try:
        return open_files(folder, options, declared=metadata)
    except NoFileError:
        if not (folder / "train").is_dir():
            raise
        return open_store(
            folder, layout="flat", file_pattern=file_pattern, dtype=dtype, vocab_size=vocab_size
        )
