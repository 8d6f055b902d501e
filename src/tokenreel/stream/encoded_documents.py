"""Documents as ids: encoded, held in memory, cut, as a split of a store, as text for a state.

A document gets its begin and end tokens and is cut to `max_doc_tokens`, those included; what
is cut off is counted, and a document that is cut has no end token. Of each call stretches of
the text are encoded by the reference too (where a faster engine does the work): a difference
is an error.

Packers see documents as a split, so that the rows of a stream are those of a store. As text
they are base64 of zlib of, little-endian,

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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import ragged_index
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.document_index import Offsets
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split
from tokenreel.stream.arrivals import Arrived, Bookmark
from tokenreel.stream.model_vocabulary import Vocabulary
from tokenreel.stream.stream_settings import TokenizerSettings
from tokenreel.text.provenance import located, name_span
from tokenreel.text.tokenizers.checked_encoder import CheckedEncoder
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

NOWHERE = Path("(stream)")
HEADER = struct.Struct("<IB")
DTYPES = {1: "<u1", 2: "<u2", 4: "<u4"}
MAX_TEXT_BYTES = 2**30  # unpacked; what claims to be more is not believed
CHECKED_STRETCHES = 2  # of 512 characters, in every call: groups are small and come seldom


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedDocuments:
    """Documents in order, and the bookmark after the last; the first may lack its begin.

    truncated: int64 [n], tokens cut off each; skipped: int64 [n], bad records before each.
    """

    documents: DocumentBatch
    truncated: np.ndarray
    skipped: np.ndarray
    after: Bookmark

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

    def cut(self, position: int) -> EncodedDocuments:
        """Return the documents from a token on; the one that holds it loses its begin."""
        if not position:
            return self
        first = max(int(np.searchsorted(self.begins, position, side="right")) - 1, 0)
        offsets = np.maximum(self.documents.offsets[first:] - position, 0)
        return replace(
            self,
            documents=DocumentBatch(ids=self.ids[position:], offsets=offsets),
            truncated=self.truncated[first:],
            skipped=self.skipped[first:],
        )

    def part(self, start: int, stop: int) -> EncodedDocuments:
        """Return documents start to stop, sharing memory; reading goes on where it did."""
        return replace(
            self,
            documents=self.documents.part(start, stop),
            truncated=self.truncated[start:stop],
            skipped=self.skipped[start:stop],
        )

    @cached_property
    def split(self) -> Split:
        """The documents as a split of one shard."""
        return memory_split(self.ids, self.documents.offsets)

    @cached_property
    def text(self) -> str:
        """The documents as text, without the bookmark; no documents are the empty text."""
        if not len(self):
            return ""
        width = np.min_scalar_type(int(self.ids.max(initial=0))).itemsize
        facts = np.stack((np.diff(self.documents.offsets), self.truncated, self.skipped))
        body = HEADER.pack(len(self), width) + facts.astype("<u4").tobytes()
        body += self.ids.astype(DTYPES[width]).tobytes()
        return base64.b64encode(zlib.compress(body)).decode()


class Encoder:
    """Encode documents as they arrive."""

    def __init__(self, vocabulary: Vocabulary, settings: TokenizerSettings) -> None:
        self._checked = CheckedEncoder(vocabulary.tokenizer, every=1, stretches=CHECKED_STRETCHES)
        self._bos = vocabulary.bos_id if settings.add_bos else None
        self._eos = vocabulary.eos_id if settings.add_eos else None
        self._max_tokens = settings.max_doc_tokens

    def encode(self, arrived: Sequence[Arrived]) -> EncodedDocuments:
        """Return the documents of these texts."""
        provenance = [document.provenance for document in arrived]
        with located(
            lambda: name_span(provenance[0], provenance[-1]),
            remedy="once the cause is gone, the next batch is made from the same place",
        ):
            texts = [document.text for document in arrived]
            encoded = self._checked.texts(texts, place=provenance.__getitem__)
        ids, offsets = _framed(encoded, self._bos, self._eos)
        ids, offsets, truncated = _truncated(ids, offsets, self._max_tokens)
        return EncodedDocuments(
            documents=DocumentBatch(ids=ids, offsets=offsets, provenance=provenance),
            after=arrived[-1].after,
            truncated=truncated,
            skipped=np.array([document.skipped for document in arrived], np.int64),
        )


def _framed(encoded: Encoded, bos: int | None, eos: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and offsets of the documents with their begin and end tokens."""
    before, after = bos is not None, eos is not None
    if not before and not after:
        return encoded.ids, encoded.offsets
    # Each document moves right by the tokens that were put in before it, int64 [n + 1].
    offsets = encoded.offsets + (before + after) * np.arange(len(encoded) + 1)
    # Special tokens are put where documents begin and end, and the text in the slots left over.
    is_text = np.ones(offsets[-1], bool)
    framed = np.empty(offsets[-1], encoded.ids.dtype)
    if bos is not None:
        framed[offsets[:-1]], is_text[offsets[:-1]] = bos, False
    if eos is not None:
        framed[offsets[1:] - 1], is_text[offsets[1:] - 1] = eos, False
    framed[is_text] = encoded.ids
    return framed, offsets


def _truncated(
    ids: np.ndarray, offsets: np.ndarray, max_tokens: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the documents without what is over the limit, and how much of each that is."""
    lengths = np.diff(offsets)
    if max_tokens is None or not (lengths > max_tokens).any():
        return ids, offsets, np.zeros(len(lengths), np.int64)
    kept = np.minimum(lengths, max_tokens)
    return ids[ragged_index(offsets[:-1], kept)], _offsets(kept), lengths - kept


def no_documents(after: Bookmark) -> EncodedDocuments:
    """Return encoded documents of which there are none; reading goes on at the bookmark."""
    nothing = np.zeros(0, np.int64)
    return _documents(np.zeros(0, np.uint32), nothing, nothing, nothing, after=after)


def joined(parts: Sequence[EncodedDocuments]) -> EncodedDocuments:
    """Return documents that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    return _documents(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([np.diff(part.documents.offsets) for part in parts]),
        np.concatenate([part.truncated for part in parts]),
        np.concatenate([part.skipped for part in parts]),
        after=parts[-1].after,
    )


def from_text(text: object, *, vocab_size: int, after: Bookmark) -> EncodedDocuments:
    """Return the documents that a text stands for; raise ConfigError for anything else.

    >>> held = joined([no_documents(Bookmark()), _documents(np.array([7, 300]), np.array([2]),
    ...                np.array([0]), np.array([1]), after=Bookmark(number=1))])
    >>> from_text(held.text, vocab_size=301, after=Bookmark(number=1)).ids.tolist()
    [7, 300]
    """
    if text == "":
        return no_documents(after)
    body = _unpacked(text)
    count, width = HEADER.unpack_from(body) if len(body) >= HEADER.size else (0, 0)
    start = HEADER.size + 12 * count  # of the ids, behind three u4 for each document
    if count and width in DTYPES and start <= len(body):
        facts = np.frombuffer(body, "<u4", 3 * count, HEADER.size).reshape(3, count)
        lengths, truncated, skipped = facts.astype(np.int64)
        if len(body) == start + width * int(lengths.sum()):
            ids = np.frombuffer(body, DTYPES[width], offset=start).astype(np.uint32)
            if ids.max(initial=0) < vocab_size:
                return _documents(ids, lengths, truncated, skipped, after=after)
    raise ConfigError(
        "bad buffer in a stream's state",
        expected=f"documents of ids below {vocab_size:,}, as get_state() packs them",
        actual=f"{text!r:.60}",
    )


def _unpacked(text: object) -> bytes:
    """Return what was packed as text, or no bytes if it is damaged or too long."""
    try:
        unpacking = zlib.decompressobj()
        packed = base64.b64decode(text if isinstance(text, str) else b"?", validate=True)
        body = unpacking.decompress(packed, MAX_TEXT_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return b""
    return body if unpacking.eof and not unpacking.unused_data else b""


def _documents(
    ids: np.ndarray,
    lengths: np.ndarray,
    truncated: np.ndarray,
    skipped: np.ndarray,
    *,
    after: Bookmark,
) -> EncodedDocuments:
    documents = DocumentBatch(ids=ids, offsets=_offsets(lengths))
    return EncodedDocuments(documents=documents, truncated=truncated, skipped=skipped, after=after)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


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
