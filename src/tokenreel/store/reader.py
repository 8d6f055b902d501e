"""The native layout: manifest.json, token shards, sidecars. FORMAT.md specifies it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError, DamageError, MissingFileError, UnfinishedError
from tokenreel.store.block_writer import block_digests, root_digest
from tokenreel.store.build_folder import BUILD_FOLDER
from tokenreel.store.document_index import DocumentIndex, Offsets
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.manifest import (
    MANIFEST_NAME,
    Facts,
    Manifest,
    ShardEntry,
    file_bytes,
    read_manifest,
)
from tokenreel.store.open_options import OpenOptions
from tokenreel.store.origins import ORIGIN
from tokenreel.store.shard import IndexFile, Shard, check_mappable
from tokenreel.store.shard_record import RECORD_SUFFIX
from tokenreel.store.split import Split
from tokenreel.store.store import Store
from tokenreel.text.turns import TURN

NAME = "native"

# Document indexes are hashed and checked when a store is opened, up to this much; of a larger
# store each index is checked when it is first touched, before anything is sliced by it.
CHECKED_INDEX_BYTES = 64 * 1024 * 1024
CHECKED_SHARDS = 1024


def fits(path: Path) -> str | None:
    """Say why a folder is not a native store; None if it is one."""
    if (path / MANIFEST_NAME).exists() or (path / BUILD_FOLDER).exists():
        return None
    return f"no {MANIFEST_NAME}"


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open a native store: O(shards) work, no token is read."""
    if not (path / MANIFEST_NAME).exists():
        raise UnfinishedError(
            "a build was begun here and has not been finished",
            where=path,
            remedy="run the same build again: finished shards are kept",
        )
    manifest = read_manifest(path / MANIFEST_NAME)
    try:
        return _open(path, manifest, options)
    except DamageError:
        # The store may have been replaced meanwhile, and once more, so that its files are gone.
        if read_manifest(path / MANIFEST_NAME) == manifest:
            raise
        return open_layout(path, options)


def _open(path: Path, manifest: Manifest, options: OpenOptions) -> Store:
    _refuse_declarations(manifest.facts, options, path)
    _check_files(path, manifest)
    splits = {
        name: Split(name, [open_shard(path, item, manifest.facts, options.mode) for item in shards])
        for name, shards in manifest.splits.items()
    }
    check_mappable([shard for split in splits.values() for shard in split.shards], where=path)
    _check_small_indexes(splits)
    return Store(
        path=path,
        layout=NAME,
        dtype=manifest.facts.token_dtype,
        dtype_source="manifest",
        splits=splits,
        make_fingerprint=lambda: manifest.fingerprint,
        vocab_size=manifest.facts.vocab_size,
        tokenizer=manifest.facts.tokenizer,
        manifest=manifest,
    )


def _refuse_declarations(facts: Facts, options: OpenOptions, path: Path) -> None:
    """A native store declares itself; a caller who says otherwise is told, not believed."""
    for name, declared, actual in (
        ("dtype", options.dtype and options.dtype.name, facts.dtype),
        ("vocab_size", options.vocab_size, facts.vocab_size),
    ):
        if declared is not None and declared != actual:
            raise ConfigError(
                f"the store declares another {name}", where=path, expected=actual, actual=declared
            )


def _check_files(root: Path, manifest: Manifest) -> None:
    """Check that every file is there, regular, inside the store, and of the right size."""
    real_root = os.path.realpath(root)
    facts = manifest.facts
    found: dict[str, dict[str, int]] = {}
    for shards in manifest.splits.values():
        for entry in shards:
            folder, _, stem = entry.path.rpartition("/")
            if folder not in found:
                found[folder] = _list_folder(root, folder, real_root)
            sizes = found[folder]
            for kind in facts.kinds:
                _check_file(root, f"{stem}.{kind}", folder, sizes, file_bytes(facts, entry, kind))
            _check_file(root, f"{stem}{RECORD_SUFFIX}", folder, sizes, None)


def _list_folder(root: Path, folder: str, real_root: str) -> dict[str, int]:
    """Return name → size of the files in a folder of the store."""
    place = root / folder
    if not _is_inside(os.path.realpath(place), real_root):
        raise DamageError("the folder leads out of the store through a link", where=place)
    try:
        with os.scandir(place) as entries:
            sizes = {entry.name: _entry_size(entry, real_root) for entry in entries}
    except OSError as error:
        raise DamageError(f"cannot be read: {error.strerror}", where=place) from error
    return {name: size for name, size in sizes.items() if size is not None}


def _entry_size(entry: os.DirEntry[str], real_root: str) -> int | None:
    """Return the size of a regular file; None for anything else."""
    if entry.is_symlink() and not _is_inside(os.path.realpath(entry.path), real_root):
        raise DamageError(
            "the file leads out of the store through a link",
            where=entry.path,
            remedy="put the file itself there",
        )
    return entry.stat().st_size if entry.is_file() else None


def _is_inside(real_path: str, real_root: str) -> bool:
    return real_path == real_root or real_path.startswith(real_root + os.sep)


def _check_file(
    root: Path, name: str, folder: str, sizes: dict[str, int], expected: int | None
) -> None:
    actual = sizes.get(name)
    if actual is None or (expected is not None and actual != expected):
        kind = MissingFileError if actual is None else DamageError
        raise kind(
            "the file is missing" if actual is None else "the file has the wrong size",
            where=root / folder / name,
            expected=None if expected is None else f"{expected:,} bytes",
            actual=None if actual is None else f"{actual:,} bytes",
            remedy="restore the file or build the store again",
        )


def open_shard(root: Path, entry: ShardEntry, facts: Facts, mode: str) -> Shard:
    """Return a shard of the manifest; nothing is read yet."""

    def array(kind: str, dtype: np.dtype) -> ArrayFile:
        count = file_bytes(facts, entry, kind) // dtype.itemsize
        return ArrayFile(path=root / f"{entry.path}.{kind}", dtype=dtype, count=count)

    docs = array("docs", np.dtype("<u8"))
    weights = np.dtype(facts.weights).newbyteorder("<") if facts.weights else None
    return Shard(
        name=entry.path,
        token_file=array("bin", facts.token_dtype),
        index_file=IndexFile(
            path=docs.path, count=entry.documents, load=lambda: _load_index(docs, entry, facts)
        ),
        turn_file=array("turns", TURN) if facts.turns else None,
        weight_file=array("weights", weights) if weights else None,
        origin_file=array("origins", ORIGIN) if facts.provenance else None,
        string_file=array("strings", np.dtype(np.uint8)) if facts.provenance else None,
        record_file=array("records", np.dtype("<u8")) if facts.records else None,
        object_file=array("objects", np.dtype(np.uint8)) if facts.records else None,
        has_groups=facts.groups,
        continues=entry.continues,
        mode=mode,
    )


def _load_index(docs: ArrayFile, entry: ShardEntry, facts: Facts) -> DocumentIndex:
    """Read a document index (a copy: it is small, and then beyond all damage) and check it."""
    docs.check_size()
    offsets = docs.read(0, docs.count)
    actual = root_digest(block_digests(offsets.data.cast("B"), facts.block_bytes))
    if actual != entry.docs_sha256:
        raise DamageError(
            "the document index fails its checksum",
            where=docs.path,
            expected=entry.docs_sha256[:12],
            actual=actual[:12],
            remedy="restore the file or build the store again",
        )
    if offsets[0] != 0 or offsets[-1] != entry.tokens:
        raise DamageError(
            "the document index does not cover the shard",
            where=docs.path,
            expected=f"0 to {entry.tokens:,}",
            actual=f"{offsets[0]:,} to {offsets[-1]:,}",
        )
    return Offsets(offsets)


def _check_small_indexes(splits: dict[str, Split]) -> None:
    shards = [shard for split in splits.values() for shard in split.shards]
    num_bytes = sum(8 * (shard.num_documents or 0) for shard in shards)
    if num_bytes <= CHECKED_INDEX_BYTES and len(shards) <= CHECKED_SHARDS:
        for shard in shards:
            _ = shard.documents
