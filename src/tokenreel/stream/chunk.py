"""Encoded documents in memory: joined, cut, as a split of a store, and as text for a state.

Packers see a chunk as a split, so that the rows of a stream are those of a store. As text it
is base64 of zlib of, little-endian,

    u4 documents · u1 bytes of an id · u4 [documents] tokens, truncated, skipped · ids

with ids as narrow as the largest of them: one to two bytes of text for a token, and 20 ms for
the 150,000 tokens that wait at the defaults. Nothing of a text is believed: see `from_text`.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.document_index import Offsets
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split
from tokenreel.stream.place import Place

NOWHERE = Path("(stream)")
HEADER = struct.Struct("<IB")
DTYPES = {1: "<u1", 2: "<u2", 4: "<u4"}
MAX_TEXT_BYTES = 2**30  # unpacked; what claims to be more is not believed


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Documents in order, and the place after the last; the first may lack its begin.

    truncated: int64 [n], tokens cut off each; skipped: int64 [n], bad records before each.
    """

    documents: DocumentBatch
    truncated: np.ndarray
    skipped: np.ndarray
    after: Place

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def ids(self) -> np.ndarray:
        """All tokens, end to end."""
        return self.documents.ids

    @property
    def begins(self) -> np.ndarray:
        """Where each document begins, int64 [n]."""
        return self.documents.offsets[:-1]

    def cut(self, position: int) -> Chunk:
        """Return the documents from a token on; the one that holds it loses its begin."""
        if not position:
            return self
        first = max(int(np.searchsorted(self.begins, position, side="right")) - 1, 0)
        offsets = np.maximum(self.documents.offsets[first:] - position, 0)
        return Chunk(
            documents=DocumentBatch(ids=self.ids[position:], offsets=offsets),
            truncated=self.truncated[first:],
            skipped=self.skipped[first:],
            after=self.after,
        )

    def part(self, start: int, stop: int) -> Chunk:
        """Return documents start to stop, sharing memory; reading goes on where it did."""
        return Chunk(
            documents=self.documents.part(start, stop),
            truncated=self.truncated[start:stop],
            skipped=self.skipped[start:stop],
            after=self.after,
        )

    @cached_property
    def split(self) -> Split:
        """The documents as a split of one shard."""
        return memory_split(self.ids, self.documents.offsets)

    @cached_property
    def text(self) -> str:
        """The documents as text, without the place; nothing at all is the empty text."""
        if not len(self):
            return ""
        width = np.min_scalar_type(int(self.ids.max(initial=0))).itemsize
        facts = np.stack((np.diff(self.documents.offsets), self.truncated, self.skipped))
        body = HEADER.pack(len(self), width) + facts.astype("<u4").tobytes()
        body += self.ids.astype(DTYPES[width]).tobytes()
        return base64.b64encode(zlib.compress(body)).decode()


def no_documents(after: Place) -> Chunk:
    """Return a chunk that holds nothing."""
    nothing = np.zeros(0, np.int64)
    documents = DocumentBatch(ids=np.zeros(0, np.uint32), offsets=np.zeros(1, np.int64))
    return Chunk(documents=documents, truncated=nothing, skipped=nothing, after=after)


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return the documents of chunks that follow each other as one chunk."""
    if len(chunks) == 1:
        return chunks[0]
    lengths = [np.diff(chunk.documents.offsets) for chunk in chunks]
    ids = np.concatenate([chunk.ids for chunk in chunks])
    return _made(
        ids,
        np.concatenate(lengths),
        np.concatenate([chunk.truncated for chunk in chunks]),
        np.concatenate([chunk.skipped for chunk in chunks]),
        after=chunks[-1].after,
    )


def from_text(text: object, *, vocab_size: int, after: Place) -> Chunk:
    """Return the chunk that a text stands for; raise ConfigError for anything else.

    >>> chunk = joined([no_documents(Place()), _made(np.array([7, 300]), np.array([2]),
    ...                 np.array([0]), np.array([1]), after=Place(number=1))])
    >>> from_text(chunk.text, vocab_size=301, after=Place(number=1)).ids.tolist()
    [7, 300]
    """
    if text == "":
        return no_documents(after)
    body = _unpacked(text)
    count, width = HEADER.unpack_from(body) if len(body) >= HEADER.size else (0, 0)
    start = HEADER.size + 12 * count
    if count and width in DTYPES and start <= len(body):
        facts = np.frombuffer(body, "<u4", 3 * count, HEADER.size).reshape(3, count)
        lengths, truncated, skipped = facts.astype(np.int64)
        if len(body) == start + width * int(lengths.sum()):
            ids = np.frombuffer(body, DTYPES[width], offset=start).astype(np.uint32)
            if ids.max(initial=0) < vocab_size:
                return _made(ids, lengths, truncated, skipped, after=after)
    raise ConfigError(
        "bad buffer in a stream's state",
        expected=f"documents of ids below {vocab_size:,}, as get_state() packs them",
        actual=f"{text!r:.60}",
    )


def _unpacked(text: object) -> bytes:
    """Return what was packed as text, or nothing if it is damaged or too much."""
    try:
        unpacking = zlib.decompressobj()
        packed = base64.b64decode(text if isinstance(text, str) else b"?", validate=True)
        body = unpacking.decompress(packed, MAX_TEXT_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return b""
    return body if unpacking.eof and not unpacking.unused_data else b""


def _made(
    ids: np.ndarray,
    lengths: np.ndarray,
    truncated: np.ndarray,
    skipped: np.ndarray,
    *,
    after: Place,
) -> Chunk:
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    documents = DocumentBatch(ids=ids, offsets=offsets)
    return Chunk(documents=documents, truncated=truncated, skipped=skipped, after=after)


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryShard(Shard):
    """A shard whose tokens lie in an array."""

    ids: np.ndarray

    @cached_property
    def tokens(self) -> np.ndarray:
        """All tokens."""
        return self.ids


def memory_split(ids: np.ndarray, offsets: np.ndarray) -> Split:
    """Return documents that lie end to end as a split of one shard.

    >>> memory_split(np.array([5, 6, 7]), np.array([0, 2, 3])).document(1).tokens.tolist()
    [7]
    """
    shard = MemoryShard(
        name="stream",
        token_file=ArrayFile(path=NOWHERE, dtype=ids.dtype, count=len(ids)),
        index_file=IndexFile(path=NOWHERE, count=len(offsets) - 1, load=lambda: Offsets(offsets)),
        ids=ids,
    )
    return Split("stream", [shard])
