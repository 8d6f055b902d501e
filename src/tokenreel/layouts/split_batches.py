"""The documents of a split, a few megabytes at a time.

Tokens are views of the mapped shard wherever documents lie end to end, so memory
stays bounded by one batch (4 M tokens), and by one document where that is larger
and continues over shards. Where documents are not known, each file is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.document_records import Records
from tokenreel.store.shard import Shard
from tokenreel.store.split import Split
from tokenreel.text.turns import token_weights

BATCH_TOKENS = 4 * 1024 * 1024
BATCH_DOCUMENTS = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What goes along with the tokens; `weights` names their dtype."""

    turns: bool = False
    weights: str | None = None
    provenance: bool = False
    records: bool = False


def document_batches(split: Split, carried: Carried) -> Iterator[DocumentBatch]:
    """Yield all documents of a split in order."""
    begun: list[DocumentBatch] = []  # a document that goes on in the next shard
    for shard in split.shards:
        if shard.index_file is None:
            yield _batch(shard, 0, np.zeros(1, np.int64), np.array([shard.num_tokens]), carried)
            continue
        first, last = 0, len(shard.documents)
        if begun:
            begun += _batches(shard, 0, 1, carried)
            first = 1
            if shard.continues and last == 1:
                continue
            yield _joined(begun)
            begun = []
        if shard.continues:
            begun = list(_batches(shard, last - 1, last, carried))
            last -= 1
        yield from _batches(shard, first, last, carried)


def loss_weights(documents: DocumentBatch) -> np.ndarray | None:
    """Return the loss weight of each token, float32 [total]: stored, of the turns, or None."""
    if documents.weights is not None:
        return documents.weights.astype(np.float32)
    if documents.turns is None or documents.turn_offsets is None:
        return None
    turns = documents.turns.copy()
    starts = np.repeat(documents.offsets[:-1], np.diff(documents.turn_offsets))
    turns["start"] += starts.astype(np.uint64)
    return token_weights(turns, len(documents.ids))


def _batches(shard: Shard, first: int, last: int, carried: Carried) -> Iterator[DocumentBatch]:
    for block in range(first, last, BATCH_DOCUMENTS):
        numbers = np.arange(block, min(block + BATCH_DOCUMENTS, last))
        starts, stops = shard.documents.bounds(numbers)
        done = 0
        while done < len(numbers):
            limit = starts[done] + BATCH_TOKENS
            stop = max(int(np.searchsorted(stops, limit, side="right")), done + 1)
            yield _batch(shard, block + done, starts[done:stop], stops[done:stop], carried)
            done = stop


def _batch(
    shard: Shard, first: int, starts: np.ndarray, stops: np.ndarray, carried: Carried
) -> DocumentBatch:
    """Return documents from number `first` on, which lie at starts to stops."""
    lengths = stops - starts
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    turns, turn_offsets = _turns(shard, starts, stops) if carried.turns else (None, None)
    return DocumentBatch(
        ids=_gather(shard.tokens, starts, stops),
        offsets=offsets,
        turns=turns,
        turn_offsets=turn_offsets,
        weights=_weights(shard, starts, stops, carried.weights) if carried.weights else None,
        provenance=shard.provenances(first, first + len(starts)) if carried.provenance else None,
        records=_records(shard, first, first + len(starts)) if carried.records else None,
    )


def _records(shard: Shard, first: int, stop: int) -> Records | None:
    return None if shard.records is None else shard.records[first:stop]


def _gather(values: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the values of all ranges end to end: a view, unless there are gaps between."""
    span = values[int(starts[0]) : int(stops[-1])]
    if (starts[1:] == stops[:-1]).all():
        return span
    lengths = stops - starts
    moved = starts - starts[0] - (np.cumsum(lengths) - lengths)
    return span[np.arange(int(lengths.sum())) + np.repeat(moved, lengths)]


def _weights(shard: Shard, starts: np.ndarray, stops: np.ndarray, dtype: str) -> np.ndarray:
    if shard.weights is None:
        return np.ones(int((stops - starts).sum()), dtype)
    return _gather(shard.weights, starts, stops).astype(dtype, copy=False)


def _turns(shard: Shard, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the turns that begin in these documents, counted from their document's start."""
    table = shard.turns
    if table is None:
        raise ValueError(f"{shard.name} has no turns")
    bounds = np.concatenate((starts[:1], stops)).astype(np.uint64)
    places = np.searchsorted(table["start"], bounds)
    turn_offsets = (places - places[0]).astype(np.int64)
    turns = table[places[0] : places[-1]].copy()
    turns["start"] -= np.repeat(starts, np.diff(turn_offsets)).astype(np.uint64)
    return turns, turn_offsets


def _joined(pieces: list[DocumentBatch]) -> DocumentBatch:
    """Return one document made of its pieces."""
    ids = np.concatenate([piece.ids for piece in pieces])
    weights = [piece.weights for piece in pieces if piece.weights is not None]
    return DocumentBatch(
        ids=ids,
        offsets=np.array([0, len(ids)], np.int64),
        weights=np.concatenate(weights) if weights else None,
        provenance=pieces[0].provenance,
        records=pieces[0].records,
    )
