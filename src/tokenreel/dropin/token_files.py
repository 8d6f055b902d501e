"""The files of contract 003, opened with the dtype that something declares.

The order of files is that of their sorted paths, as the contract says. A .bin file's
dtype comes from the argument, the metadata beside the files or, where the folder is a
split of a store, above them; only where nothing declares it, from the files' sizes, and
then it is said aloud.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tokenreel.errors import ConfigError, LayoutError
from tokenreel.store.door import open_store
from tokenreel.store.layouts.listing import SPLIT_NAMES
from tokenreel.store.layouts.metadata import read_metadata
from tokenreel.store.manifest import MANIFEST_NAME
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
    folder = Path(data_dir)
    if not folder.is_dir():
        raise LayoutError("there is no such folder", where=folder)
    store, split = _native(folder, file_pattern) or _flat(folder, file_pattern, dtype, vocab_size)
    by_path = sorted(split.shards, key=lambda shard: shard.token_file.path)
    return store, Split(split.name, by_path)


def _native(folder: Path, file_pattern: str) -> tuple[Store, Split] | None:
    """Return a store of our own: the folder is one, or is a split of one."""
    for root, name in ((folder, "train"), (folder.parent, folder.name)):
        if (root / MANIFEST_NAME).is_file():
            if not Path("shard_00000.bin").match(file_pattern):
                raise ConfigError(
                    "file_pattern matches no shard of this store",
                    where=root,
                    expected="*.bin",
                    actual=repr(file_pattern),
                )
            store = open_store(root, layout="native")
            return store, store[name]
    return None


def _flat(
    folder: Path, file_pattern: str, dtype: str | None, vocab_size: int | None
) -> tuple[Store, Split]:
    above = folder.name in SPLIT_NAMES and read_metadata(folder).path is None
    declared = read_metadata(folder.parent) if above else None
    if declared is not None and dtype is None and not file_pattern.endswith(".npy"):
        dtype = None if declared.dtype is None else declared.dtype.name
    store = open_store(
        folder,
        layout="flat",
        file_pattern=file_pattern,
        dtype=dtype,
        vocab_size=vocab_size or (declared.vocab_size if declared else None),
    )
    return store, store["train"]
