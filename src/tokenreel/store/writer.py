"""Write a store as documents arrive.

Memory is bounded by a few blocks per split, whatever the corpus. A shard is full
when the next document does not fit; a document straddles shards only if it is
larger than one. Killed and run again with the same documents, a writer keeps
every finished shard and ends with the bytes of an uninterrupted build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.canonical import canonical_bytes, parse_canonical
from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError, EmptyError, FormatError, MismatchError, WriteError
from tokenreel.filesystem import LOCAL, FileSystem
from tokenreel.store.block_writer import BLOCK_BYTES
from tokenreel.store.build_folder import BuildTarget
from tokenreel.store.document_batch import DocumentBatch, check_documents
from tokenreel.store.manifest import (
    MANIFEST_NAME,
    SPLIT_NAME,
    TOKEN_DTYPES,
    WEIGHT_DTYPES,
    Facts,
    Manifest,
    parse_facts,
)
from tokenreel.store.split_writer import SplitWriter
from tokenreel.text.provenance import Provenance

SHARD_BYTES = 128 * 1024 * 1024


class StoreWriter:
    """Write documents into a new store; leaving the block without an error commits it.

    >>> import tempfile, tokenreel
    >>> folder = tempfile.mkdtemp() + "/tiny"
    >>> with StoreWriter(folder, vocab_size=256) as writer:
    ...     writer.add([104, 105])
    ...     writer.add([111, 107], split="val")
    >>> store = tokenreel.open_store(folder)
    >>> store["train"].document(0).tokens.tolist()
    [104, 105]
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        vocab_size: int,
        dtype: str | None = None,
        shard_bytes: int = SHARD_BYTES,
        block_bytes: int = BLOCK_BYTES,
        turns: bool = False,
        groups: bool = False,
        weights: str | None = None,
        provenance: bool = False,
        records: bool = False,
        tokenizer: Mapping[str, Any] | None = None,
        build: Mapping[str, Any] | None = None,
        replace: bool = False,
        restart: bool = False,
        note: Mapping[str, Any] | None = None,
        filesystem: FileSystem = LOCAL,
    ) -> None:
        self.facts = _facts(
            dtype=dtype,
            vocab_size=vocab_size,
            shard_bytes=shard_bytes,
            block_bytes=block_bytes,
            turns=turns,
            groups=groups,
            weights=weights,
            provenance=provenance,
            records=records,
            tokenizer=tokenizer,
            build=build or {},
        )
        self.path = usable_path(path)
        self.notes: dict[str, Any] = {}
        self._filesystem = filesystem
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="tokenreel-hash")
        self._splits: dict[str, SplitWriter] = {}
        self._broken = False
        self._closed = False
        self._target = BuildTarget(
            self.path,
            self.facts,
            replace=replace,
            restart=restart,
            filesystem=filesystem,
            note=None if note is None else _as_json(note),
        )

    def add(
        self,
        ids: Sequence[int] | np.ndarray,
        *,
        split: str = "train",
        turns: np.ndarray | None = None,
        weights: Sequence[float] | np.ndarray | None = None,
        provenance: Provenance | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one document; many at once are faster with `add_batch`."""
        array = np.asarray(ids) if len(ids) else np.empty(0, np.uint16)
        self.add_batch(
            DocumentBatch(
                ids=array,
                offsets=np.array([0, len(array)], np.int64),
                turns=turns,
                turn_offsets=None if turns is None else np.array([0, len(turns)], np.int64),
                weights=None if weights is None else np.asarray(weights),
                provenance=None if provenance is None else [provenance],
                records=None if record is None else [record],
            ),
            split=split,
        )

    def add_batch(self, documents: DocumentBatch, *, split: str = "train") -> None:
        """Append documents that lie end to end in one array."""
        self._refuse_unless_open()
        checked = check_documents(documents, self.facts)
        writer = self._split(split)
        self._broken = True  # until the documents are in: half a batch must never be committed
        writer.add(checked)
        self._broken = False

    def resume(self, split: str = "train") -> int:
        """Return how many documents are already safe; the caller goes on with the one after them.

        Call it once for each split, before its first document. Without this call the
        writer compares what is added with the finished shards, so a program that simply
        runs again ends with the right store, only slower.
        """
        self._refuse_unless_open()
        return self._split(split).take_over()

    def num_safe(self, split: str = "train") -> int:
        """Return how many documents lie in finished shards: what a crash now would leave."""
        self._refuse_unless_open()
        return self._split(split).num_safe

    def _split(self, name: str) -> SplitWriter:
        if name not in self._splits:
            if not SPLIT_NAME.match(name):
                raise ConfigError(
                    "bad split name", expected="letters, digits, _ and -", actual=repr(name)
                )
            self._broken = True
            self._splits[name] = SplitWriter(
                name, self._target, self.facts, filesystem=self._filesystem, hasher=self._hasher
            )
            self._broken = False
        return self._splits[name]

    def commit(self) -> None:
        """Finish the open shards and write the manifest: from here on the store exists."""
        self._refuse_unless_open()
        if not any(split.num_tokens for split in self._splits.values()):
            raise EmptyError(
                "no tokens were added, so there is no store",
                where=self.path,
                remedy="look at the sources: they gave no document, or only empty ones",
            )
        self._refuse_forgotten()
        notes = _as_json(self.notes)
        self._broken = True  # until it is done: a failed fsync must not be tried again
        for split in self._splits.values():
            split.finish()
        shards = {name: tuple(s.entries) for name, s in self._splits.items() if s.entries}
        self._target.commit(Manifest(facts=self.facts, splits=shards, notes=notes))
        self._release()

    def _refuse_unless_open(self) -> None:
        if self._closed:
            raise WriteError(
                "this writer is closed",
                where=self.path,
                remedy="open a new writer: stores are never changed, only replaced",
            )
        if self._broken:
            raise WriteError(
                "an earlier call failed half-way, so this writer can go no further",
                where=self.path,
                remedy="open a new writer: finished shards are kept",
            )

    def _refuse_forgotten(self) -> None:
        """Refuse to leave out a split that the unfinished build had and this one did not touch."""
        forgotten = self._target.begun_splits() - set(self._splits)
        if forgotten:
            raise MismatchError(
                "the unfinished build has splits that were not added again",
                where=self.path,
                differing={"splits": (sorted(forgotten | set(self._splits)), sorted(self._splits))},
                remedy="add or resume every split, or pass restart=True to begin anew",
            )

    def abandon(self) -> None:
        """Stop here: temporaries go, finished shards stay for the next build of the same store."""
        with ExitStack() as parts:
            parts.callback(self._release)
            for split in self._splits.values():
                parts.callback(split.abandon)

    @property
    def has_finished_work(self) -> bool:
        """Whether a crash now would leave a finished shard or an encoded chunk."""
        return self._target.has_finished_work()

    def forget(self) -> None:
        """Stop here and remove what was written, the finished shards too."""
        for split in self._splits.values():
            split.abandon()
        self._splits = {}
        self._hasher.shutdown()
        self._closed = True
        self._target.forget()

    def _release(self) -> None:
        self._splits = {}
        self._hasher.shutdown()
        if not self._closed:
            self._closed = True
            self._target.release()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if kind is None and not self._closed:
                self.commit()
        finally:
            self.abandon()


def _facts(*, dtype: str | None, vocab_size: int, weights: str | None, **rest: Any) -> Facts:
    if isinstance(vocab_size, bool) or not 1 <= vocab_size <= 2**32:
        raise ConfigError("bad vocab_size", expected="1 to 2**32", actual=vocab_size)
    dtype = dtype or ("uint16" if vocab_size <= 2**16 else "uint32")
    if dtype not in TOKEN_DTYPES:
        raise ConfigError("bad token dtype", expected=" or ".join(TOKEN_DTYPES), actual=dtype)
    if dtype == "uint16" and vocab_size > 2**16:
        raise ConfigError(
            "the vocabulary does not fit uint16", expected="<= 65,536", actual=vocab_size
        )
    if weights not in (None, *WEIGHT_DTYPES):
        raise ConfigError("bad weights", expected=" or ".join(WEIGHT_DTYPES), actual=weights)
    facts = _readable(Facts(dtype=dtype, vocab_size=vocab_size, weights=weights, **rest))
    if facts.shard_bytes < facts.token_dtype.itemsize:
        raise ConfigError("shard_bytes is too small", expected=">= 4", actual=facts.shard_bytes)
    if facts.block_bytes < 8 or facts.block_bytes % 8:
        raise ConfigError("bad block_bytes", expected="a multiple of 8", actual=facts.block_bytes)
    return facts


def _readable(facts: Facts) -> Facts:
    """Return the facts as they will be read again, or raise ConfigError where they cannot be."""
    try:
        return parse_facts(_as_json(facts.as_json()), Path(MANIFEST_NAME))
    except FormatError as error:
        raise ConfigError(
            f"the store could not be read again: {error.what}",
            expected=error.expected,
            actual=error.actual,
        ) from error


def _as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy as JSON gives it back: lists for tuples, and nothing that can change later."""
    try:
        return parse_canonical(canonical_bytes(value), where=Path(MANIFEST_NAME))
    except (TypeError, ValueError, RecursionError, FormatError) as error:
        raise ConfigError(
            f"what is said about a store must be JSON: {error}",
            remedy="use strings, finite numbers, lists and mappings in tokenizer, build and notes",
        ) from error
