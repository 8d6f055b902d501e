"""Rebuild records and manifests from files that are intact, and nothing else.

Can be rebuilt: a lost or damaged record (from the shard's files, if they hash to
what the manifest vouches for); a lost or damaged manifest (from the records, if
every byte of the shards passes them). Cannot: tokens, document offsets, turns,
weights, provenance, the records of documents. These are never guessed.
"""

from __future__ import annotations

import hashlib
import re
from os import PathLike
from pathlib import Path

from tokenreel.config.paths import usable_path
from tokenreel.errors import DamageError, FormatError, StoreError, TokenreelError
from tokenreel.filesystem import LOCAL
from tokenreel.inspect.verify import verify_manifest
from tokenreel.progress import SILENT, Progress
from tokenreel.store.block_writer import block_digests
from tokenreel.store.build_folder import BUILD_FOLDER
from tokenreel.store.manifest import (
    MANIFEST_NAME,
    SPLIT_NAME,
    Facts,
    Manifest,
    ShardEntry,
    read_manifest,
)
from tokenreel.store.shard_record import RECORD_SUFFIX, ShardRecord, read_record
from tokenreel.store.shard_writer import shard_name

GENERATION = re.compile(r"(?P<split>.+?)(\.\d+)?\Z")


def repair_store(path: str | PathLike[str], *, progress: Progress = SILENT) -> list[str]:
    """Rebuild lost records or a lost manifest; return what was done, in words."""
    root = usable_path(path)
    if (root / BUILD_FOLDER).exists() and not (root / MANIFEST_NAME).exists():
        raise StoreError(
            "this is an unfinished build, not a damaged store",
            where=root,
            remedy="run the same build again: finished shards are kept",
        )
    try:
        manifest = read_manifest(root / MANIFEST_NAME)
    except FormatError:
        return [_rebuild_manifest(root, progress)]
    return [
        action
        for split, shards in manifest.splits.items()
        for number, entry in enumerate(shards)
        for action in _repair_record(root, manifest.facts, entry, split, number)
    ]


def _repair_record(
    root: Path, facts: Facts, entry: ShardEntry, split: str, number: int
) -> list[str]:
    path = root / f"{entry.path}{RECORD_SUFFIX}"
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == entry.record_sha256:
        return []
    record = ShardRecord(
        facts=facts,
        split=split,
        number=number,
        tokens=entry.tokens,
        documents=entry.documents,
        turns=entry.turns,
        strings_bytes=entry.strings_bytes,
        continues=entry.continues,
        records_bytes=entry.records_bytes,
        blocks={kind: _digests(root / f"{entry.path}.{kind}", facts) for kind in facts.kinds},
    )
    if hashlib.sha256(record.to_bytes()).hexdigest() != entry.record_sha256:
        raise DamageError(
            "the record is lost, and the shard's files are not what it vouched for",
            where=path,
            remedy="restore the shard, or build the store again",
        )
    LOCAL.write_whole(path, record.to_bytes())
    return [f"{path}: record rebuilt from the shard's files"]


def _digests(path: Path, facts: Facts) -> list[str]:
    digests: list[str] = []
    try:
        with path.open("rb") as file:
            while block := file.read(facts.block_bytes):
                digests += block_digests(memoryview(block), facts.block_bytes)
    except OSError as error:
        raise DamageError(
            f"cannot be read: {error.strerror}",
            where=path,
            remedy="this file cannot be made again from others; restore it or build again",
        ) from error
    return digests


def _rebuild_manifest(root: Path, progress: Progress) -> str:
    splits: dict[str, tuple[ShardEntry, ...]] = {}
    facts: Facts | None = None
    for folder in _shard_folders(root):
        split, records = _read_records(folder)
        if split in splits:
            raise StoreError(
                f"two folders hold split {split!r}, a current and a replaced version",
                where=root,
                remedy=f"keep the right one of {split}/, {split}.2/, … and repair again",
            )
        facts = facts or records[0].facts
        if any(record.facts != facts for record in records):
            raise StoreError("the shards belong to different stores", where=folder)
        splits[split] = tuple(
            record.entry(f"{folder.name}/{shard_name(record.number)}") for record in records
        )
    if facts is None:
        raise StoreError("no shard with its record is left to rebuild a manifest from", where=root)
    manifest = Manifest(facts=facts, splits=splits)
    verdict = verify_manifest(root, manifest, progress=progress)
    if not verdict.ok:
        raise verdict.problems[0]
    LOCAL.write_whole(root / MANIFEST_NAME, manifest.to_bytes())
    shards = sum(len(entries) for entries in splits.values())
    return (
        f"{root / MANIFEST_NAME}: rebuilt from {shards:,} intact shards, "
        f"{verdict.num_tokens:,} tokens, fingerprint {manifest.fingerprint[:12]}; whole shards "
        "lost from the end of a split would not be noticed, so compare the fingerprint"
    )


def _shard_folders(root: Path) -> list[Path]:
    return sorted(
        folder
        for folder in root.iterdir()
        if folder.is_dir() and any(folder.glob(f"shard_*{RECORD_SUFFIX}"))
    )


def _read_records(folder: Path) -> tuple[str, list[ShardRecord]]:
    """Return the split of a folder and its records, which must be 0, 1, 2, … without a gap."""
    tokens = sorted(folder.glob("shard_*.bin"))
    records = sorted(
        (read_record(path) for path in folder.glob(f"shard_*{RECORD_SUFFIX}")),
        key=lambda record: record.number,
    )
    split = records[0].split
    found = GENERATION.match(folder.name)
    if not SPLIT_NAME.match(split) or found is None or found["split"] != split:
        raise StoreError(f"the records are of split {split!r}", where=folder)
    numbers = [record.number for record in records]
    problem: TokenreelError | None = None
    if numbers != list(range(len(tokens))):
        problem = DamageError(
            "records and token files do not match, so the manifest cannot be rebuilt",
            where=folder,
            expected=f"{len(tokens)} records, from 0 on",
            actual=numbers[:8],
        )
    elif records[-1].continues:
        problem = DamageError("the last shard goes on in one that is lost", where=folder)
    if problem is not None:
        raise problem
    return split, records
