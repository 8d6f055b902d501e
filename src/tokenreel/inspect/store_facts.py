"""The facts of a store, and a histogram of its document lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.store.split import Split
from tokenreel.store.store import Store

SAMPLED_DOCUMENTS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """How much is in one split; lengths are of all documents, or of an even sample."""

    name: str
    num_shards: int
    num_tokens: int
    num_bytes: int
    num_documents: int | None
    histogram: tuple[tuple[int, int], ...]
    lengths_sampled: bool
    has_turns: bool
    has_groups: bool
    has_weights: bool
    has_provenance: bool
    has_records: bool

    def as_dict(self) -> dict[str, object]:
        """Return the summary, ready for JSON."""
        return {
            "shards": self.num_shards,
            "tokens": self.num_tokens,
            "bytes": self.num_bytes,
            "documents": self.num_documents,
            "turns": self.has_turns,
            "groups": self.has_groups,
            "weights": self.has_weights,
            "provenance": self.has_provenance,
            "records": self.has_records,
            "lengths": {
                "sampled": self.lengths_sampled,
                "histogram": [
                    {"at_least_tokens": low, "documents": count} for low, count in self.histogram
                ],
            },
        }


def describe(store: Store) -> dict[str, Any]:
    """Return what is known of a store without reading its tokens."""
    splits = {name: summarise(split) for name, split in store.splits.items()}
    return {
        "path": str(store.path),
        "layout": store.layout,
        "dtype": store.dtype.name,
        "dtype_source": store.dtype_source,
        "vocab_size": store.vocab_size,
        "tokens": store.num_tokens,
        "documents": store.num_documents,
        "has_checksums": store.has_checksums,
        "fingerprint": store.fingerprint,
        "tokenizer": _plain(store.tokenizer),
        "splits": {name: summary.as_dict() for name, summary in splits.items()},
    }


def summarise(split: Split) -> SplitSummary:
    """Count what a split has and draw up the lengths of its documents."""
    first = split.shards[0]
    lengths = sample_lengths(split)
    return SplitSummary(
        name=split.name,
        num_shards=len(split.shards),
        num_tokens=split.num_tokens,
        num_bytes=sum(file.file_bytes for shard in split.shards for file in shard.files),
        num_documents=split.num_documents,
        histogram=() if lengths is None else length_histogram(lengths),
        lengths_sampled=lengths is not None and len(lengths) < (split.num_documents or 0),
        has_turns=first.turn_file is not None,
        has_groups=first.has_groups,
        has_weights=first.weight_file is not None,
        has_provenance=first.origin_file is not None,
        has_records=first.record_file is not None,
    )


def sample_lengths(split: Split) -> np.ndarray | None:
    """Return document lengths in tokens: all, or every n-th so that it stays quick."""
    total = split.num_documents
    if total is None:
        return None
    return split.document_lengths(every=max(1, total // SAMPLED_DOCUMENTS))


def length_histogram(lengths: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Count lengths in powers of two: (smallest length, how many), from the first to the last.

    >>> length_histogram(np.array([0, 1, 5, 6, 7, 16]))
    ((0, 1), (1, 1), (2, 0), (4, 3), (8, 0), (16, 1))
    """
    if not len(lengths):
        return ()
    classes = np.where(lengths > 0, np.floor(np.log2(np.maximum(lengths, 1))) + 1, 0).astype(int)
    counts = np.bincount(classes)
    first = int(np.flatnonzero(counts)[0])
    return tuple(
        (0 if number == 0 else 2 ** (number - 1), int(counts[number]))
        for number in range(first, len(counts))
    )


def _plain(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)
