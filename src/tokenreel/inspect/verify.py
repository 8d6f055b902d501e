"""Check every byte and every index of a store, and name what is wrong.

Blocks are read into a buffer that stays in cache and are hashed there, on as many
threads as asked for (read, SHA-256 and numpy's max all release the GIL); the ids
are range-checked in the same pass. Cost: that of SHA-256 over the store, about
1.4 GB/s a core here. Memory: one block per thread.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tokenreel.canonical import read_limited
from tokenreel.config.keywords import check_keywords
from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError, DamageError, StoreError, TokenreelError, VocabularyError
from tokenreel.inspect.structure import check_shard_structure, leftover_notes
from tokenreel.inspect.verdict import Verdict
from tokenreel.layouts.open_store import open_store
from tokenreel.progress import SILENT, Progress, shown
from tokenreel.rows.plan_cache import plan_problems, store_plan_problems
from tokenreel.store import reader
from tokenreel.store.id_range import check_id_range
from tokenreel.store.manifest import (
    MANIFEST_NAME,
    Facts,
    Manifest,
    ShardEntry,
    file_bytes,
    read_manifest,
)
from tokenreel.store.open_options import parse_dtype
from tokenreel.store.shard_record import RECORD_SUFFIX, ShardRecord, parse_record
from tokenreel.store.store import Store

BLOCKS_PER_TASK = 32
REBUILD = "restore the file, or build the store again"


@check_keywords
def verify(
    path: str | PathLike[str],
    *,
    threads: int | None = None,
    layout: str | None = None,
    dtype: str | np.dtype | None = None,
    vocab_size: int | None = None,
    eos_id: int | None = None,
    file_pattern: str | None = None,
    progress: bool | Progress = SILENT,
) -> Verdict:
    """Check every byte and every index of a store; damage is in the verdict, never raised.

    path
        a store, or a folder or file of another layout
    threads
        how many hash at the same time; None: one for each core
    layout
        which layout it is, if it is not recognised; this and the next four are those of
        `open_store`, and raise ConfigError where they make no sense
    dtype
        the token dtype of a layout that does not declare it
    vocab_size
        the vocabulary of a layout that does not say it: every id is below
    eos_id
        the end token by which documents are found
    file_pattern
        which files of a flat folder are shards
    progress
        is told the bytes that were read; True: a bar in a terminal or notebook

    Returns a Verdict: `ok`, the `problems` as errors that name file and offset, `notes`, and
    how many files, bytes and tokens were looked at.

    >>> import tempfile
    >>> from tokenreel import StoreWriter
    >>> path = tempfile.mkdtemp() + "/s"
    >>> with StoreWriter(path, vocab_size=9) as writer:
    ...     writer.add([1, 2, 3])
    >>> verify(path).ok, verify(path).num_tokens
    (True, 3)
    """
    place = usable_path(path)
    if threads is not None and threads < 1:
        raise ConfigError("bad threads", expected=">= 1", actual=threads)
    declared = {
        "layout": layout,
        "dtype": None if dtype is None else parse_dtype(dtype, where="dtype"),
        "vocab_size": vocab_size,
        "eos_id": eos_id,
        "file_pattern": file_pattern,
    }
    with shown(progress) as bar:
        try:
            if layout in (None, reader.NAME) and (place / MANIFEST_NAME).exists():
                manifest = read_manifest(place / MANIFEST_NAME)
            else:
                return _verify_foreign(open_store(place, **declared), bar)  # type: ignore[arg-type]
        except ConfigError:
            raise  # what was declared is wrong, not what is there
        except TokenreelError as error:
            return _nothing(place, error)
        return verify_manifest(place, manifest, threads=threads, progress=bar)


verify_store = verify  # the name where "verify" alone would not say what


def verify_manifest(
    root: Path, manifest: Manifest, *, threads: int | None = None, progress: Progress = SILENT
) -> Verdict:
    """Check every file that a manifest names."""
    entries = [entry for shards in manifest.splits.values() for entry in shards]
    facts = manifest.facts
    num_bytes = sum(file_bytes(facts, entry, kind) for entry in entries for kind in facts.kinds)
    progress.start("verifying", total=num_bytes, unit="B")
    problems: list[TokenreelError] = []
    tasks = _tasks(root, manifest, problems)
    buffers = threading.local()
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for found, done in pool.map(lambda task: _check_blocks(task, facts, buffers), tasks):
            problems += found
            progress.advance(done)
        damaged = {problem.where for problem in problems}
        for structural in pool.map(
            lambda entry: check_shard_structure(root, entry, facts, damaged), entries
        ):
            problems += structural
    problems += plan_problems(root)
    return Verdict(
        path=root,
        layout=reader.NAME,
        has_checksums=True,
        num_files=len(entries) * (len(facts.kinds) + 1) + 1,
        num_bytes=num_bytes,
        num_tokens=sum(entry.tokens for entry in entries),
        problems=tuple(problems),
        notes=leftover_notes(root, manifest),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A run of blocks of one file, with the digests they must have."""

    path: Path
    kind: str
    file_bytes: int
    first_block: int
    digests: list[str]


def _tasks(root: Path, manifest: Manifest, problems: list[TokenreelError]) -> Iterator[_Task]:
    for split, shards in manifest.splits.items():
        for number, entry in enumerate(shards):
            try:
                record = _checked_record(root, entry, manifest.facts, split, number)
                yield from _shard_tasks(root, entry, record, problems)
            except StoreError as error:
                problems.append(error)


def _checked_record(
    root: Path, entry: ShardEntry, facts: Facts, split: str, number: int
) -> ShardRecord:
    path = root / f"{entry.path}{RECORD_SUFFIX}"
    data = read_limited(path)
    actual = hashlib.sha256(data).hexdigest()
    if actual != entry.record_sha256:
        raise DamageError(
            "the record of the shard fails its checksum",
            where=path,
            expected=entry.record_sha256[:12],
            actual=actual[:12],
            remedy='run "tokenreel verify --repair": a record can be made again',
        )
    record = parse_record(data, where=path)
    if (record.entry(entry.path), record.facts) != (entry, facts) or (
        record.split,
        record.number,
    ) != (split, number):
        raise DamageError("the record and the manifest disagree", where=path)
    return record


def _shard_tasks(
    root: Path, entry: ShardEntry, record: ShardRecord, problems: list[TokenreelError]
) -> Iterator[_Task]:
    for kind in record.facts.kinds:
        path = root / f"{entry.path}.{kind}"
        expected = file_bytes(record.facts, entry, kind)
        try:
            actual = path.stat().st_size
        except OSError as error:
            problems.append(
                DamageError(f"cannot be read: {error.strerror}", where=path, remedy=REBUILD)
            )
            continue
        if actual != expected:
            problems.append(
                DamageError(
                    "the file has the wrong size",
                    where=path,
                    expected=f"{expected:,} bytes",
                    actual=f"{actual:,} bytes",
                    remedy=REBUILD,
                )
            )
            continue
        digests = record.blocks[kind]
        for first in range(0, len(digests), BLOCKS_PER_TASK):
            yield _Task(
                path=path,
                kind=kind,
                file_bytes=expected,
                first_block=first,
                digests=digests[first : first + BLOCKS_PER_TASK],
            )


def _check_blocks(
    task: _Task, facts: Facts, buffers: threading.local
) -> tuple[list[TokenreelError], int]:
    """Return the problems of a run of blocks and how many bytes it has."""
    if not hasattr(buffers, "block"):
        buffers.block = bytearray(facts.block_bytes)
    block = memoryview(buffers.block)
    problems: list[TokenreelError] = []
    done = 0
    try:
        with task.path.open("rb", buffering=0) as file:
            for number, expected in enumerate(task.digests, start=task.first_block):
                offset = number * facts.block_bytes
                size = min(facts.block_bytes, task.file_bytes - offset)
                got = os.preadv(file.fileno(), [block[:size]], offset)
                problems += _check_block(block[:got], expected, task, facts, offset)
                done += size
    except OSError as error:
        problems.append(DamageError(f"cannot be read: {error.strerror}", where=task.path))
    return problems, done


def _check_block(
    block: memoryview, expected: str, task: _Task, facts: Facts, offset: int
) -> list[TokenreelError]:
    actual = hashlib.sha256(block).hexdigest()
    if actual != expected:
        return [
            DamageError(
                f"{len(block):,} bytes at offset {offset:,} fail their checksum",
                where=task.path,
                expected=expected[:12],
                actual=actual[:12],
                remedy=REBUILD,
            )
        ]
    if task.kind == "bin" and len(block):
        ids = np.frombuffer(block, facts.token_dtype)
        if ids.max() >= facts.vocab_size:
            at = int(np.argmax(ids >= facts.vocab_size))
            return [
                VocabularyError(
                    f"token id at byte {offset + at * ids.itemsize:,} is outside the vocabulary",
                    where=task.path,
                    expected=f"0 to {facts.vocab_size - 1:,}",
                    actual=int(ids[at]),
                )
            ]
    return []


def _verify_foreign(store: Store, progress: Progress) -> Verdict:
    """Check what a layout without checksums lets us check: sizes, indexes, ids, weights."""
    shards = [shard for split in store.splits.values() for shard in split.shards]
    problems: list[TokenreelError] = []
    progress.start("verifying", total=store.num_tokens, unit="tokens")
    for shard in shards:
        try:
            shard.check_sizes()
            if shard.index_file is not None:
                _ = shard.documents
            for start in range(0, shard.num_tokens, 1 << 20):
                stop = min(start + (1 << 20), shard.num_tokens)
                check_foreign_ids(store, shard.read(start, stop), shard.token_file.path, start)
                progress.advance(stop - start)
        except TokenreelError as error:
            problems.append(error)
    problems += store_plan_problems(store)
    files = [file for shard in shards for file in shard.files]
    return Verdict(
        path=store.path,
        layout=store.layout,
        has_checksums=False,
        num_files=len(files),
        num_bytes=sum(file.file_bytes for file in files),
        num_tokens=store.num_tokens,
        problems=tuple(problems),
        notes=(
            "this layout has no checksums: sizes, indexes and id ranges were checked; "
            'bit rot cannot be seen until it is converted ("tokenreel convert")',
        ),
    )


def check_foreign_ids(store: Store, ids: np.ndarray, path: Path, start: int) -> None:
    """Raise VocabularyError for the first id that the store's vocabulary does not have."""
    check_id_range(ids, store.vocab_size, where=path, start=start)


def _nothing(path: Path, error: TokenreelError) -> Verdict:
    return Verdict(
        path=path,
        layout="unknown",
        has_checksums=False,
        num_files=0,
        num_bytes=0,
        num_tokens=0,
        problems=(error,),
    )
