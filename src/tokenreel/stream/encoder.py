"""Texts to token ids: documents with their begin and end tokens, cut where that is asked for.

A document is cut to `max_doc_tokens`, begin and end tokens included; what is cut off is
counted, and a document that is cut has no end token. Of each call a stretch of one text is
encoded by the reference too (where a faster engine does the work): a difference is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tokenreel.errors import InputError, TokenreelError, WorkerError
from tokenreel.rows.pieces import ragged_index
from tokenreel.seeds import derive_key
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.stream.arrivals import Arrived
from tokenreel.stream.chunk import Chunk
from tokenreel.stream.settings import TokenizerSettings
from tokenreel.stream.vocabulary import Vocabulary
from tokenreel.text.tokenizers.engine import require_equal
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded, join

SAMPLE_CHARACTERS = 1024


class Encoder:
    """Encode what arrives."""

    def __init__(self, vocabulary: Vocabulary, settings: TokenizerSettings) -> None:
        self._tokenizer = vocabulary.tokenizer
        self._bos = vocabulary.bos_id if settings.add_bos else None
        self._eos = vocabulary.eos_id if settings.add_eos else None
        self._max_tokens = settings.max_doc_tokens

    def encode(self, arrived: Sequence[Arrived]) -> Chunk:
        """Return the documents of these texts."""
        with _located(arrived):
            encoded = self._encode(arrived)
        ids, offsets = _framed(encoded, self._bos, self._eos)
        ids, offsets, truncated = _cut(ids, offsets, self._max_tokens)
        documents = DocumentBatch(
            ids=ids, offsets=offsets, provenance=[document.provenance for document in arrived]
        )
        return Chunk(
            documents=documents,
            after=arrived[-1].after,
            truncated=truncated,
            skipped=np.array([document.skipped for document in arrived], np.int64),
        )

    def _encode(self, arrived: Sequence[Arrived]) -> Encoded:
        texts, tokenizer = [document.text for document in arrived], self._tokenizer
        if not isinstance(tokenizer, ReferencedTokenizer) or tokenizer.engine == "reference":
            return tokenizer.encode_batch(texts)
        key = derive_key("sample", str(arrived[0].provenance))
        chosen = arrived[key % len(arrived)]
        start = key % max(1, len(chosen.text) - SAMPLE_CHARACTERS)
        stretch = chosen.text[start : start + SAMPLE_CHARACTERS]
        encoded = tokenizer.encode_batch([*texts, stretch])
        require_equal(
            tokenizer.encode_by_reference([stretch]),
            join([encoded[len(texts)]]),
            names=[chosen.provenance],
            engine=tokenizer.engine,
            decode=tokenizer.decode,
        )
        return Encoded(ids=encoded.ids[: encoded.offsets[-2]], offsets=encoded.offsets[:-1])


@contextmanager
def _located(arrived: Sequence[Arrived]) -> Iterator[None]:
    """Say of every failure in which documents it happened."""
    first, last = arrived[0].provenance, arrived[-1].provenance
    place = str(first) if first == last else f"{first} to {last}"
    try:
        yield
    except InputError as error:
        if error.where is not None:
            raise
        raise InputError(error.what, where=place, remedy=error.remedy) from error
    except TokenreelError:
        raise
    except Exception as error:
        said = "out of memory" if isinstance(error, MemoryError) else "encoding failed"
        raise WorkerError(
            f"{said}: {type(error).__name__}: {error}".removesuffix(": "),
            where=place,
            remedy="once the cause is gone, the next batch is made from the same place",
        ) from error


def _framed(encoded: Encoded, bos: int | None, eos: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and offsets of the documents with their begin and end tokens."""
    before, after = bos is not None, eos is not None
    if not before and not after:
        return encoded.ids, encoded.offsets
    count = len(encoded)
    offsets = encoded.offsets + (before + after) * np.arange(count + 1)
    is_text = np.ones(offsets[-1], bool)
    framed = np.empty(offsets[-1], encoded.ids.dtype)
    if bos is not None:
        framed[offsets[:-1]], is_text[offsets[:-1]] = bos, False
    if eos is not None:
        framed[offsets[1:] - 1], is_text[offsets[1:] - 1] = eos, False
    framed[is_text] = encoded.ids
    return framed, offsets


def _cut(
    ids: np.ndarray, offsets: np.ndarray, max_tokens: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the documents without what is over the limit, and how much of each that is."""
    lengths = np.diff(offsets)
    if max_tokens is None or not (lengths > max_tokens).any():
        return ids, offsets, np.zeros(len(lengths), np.int64)
    kept = np.minimum(lengths, max_tokens)
    shorter = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))
    return ids[ragged_index(offsets[:-1], kept)], shorter, lengths - kept
