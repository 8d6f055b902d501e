"""What a page is told of a store: splits, shards, lengths, tokenizer, build report, samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenreel.builder.report import told_template
from tokenreel.builder.report_files import REPORT_NOTE
from tokenreel.errors import ConfigError
from tokenreel.inspect.store_facts import describe
from tokenreel.store.split import Split
from tokenreel.store.store import Store
from tokenreel.view.subject import Subject

MOST_SHARDS = 1_000
NUM_SAMPLES = 8  # of each split


def split_of(store: Store, number: int) -> Split:
    """Return a split by its number; ConfigError where there is no such."""
    splits = list(store.splits.values())
    if not 0 <= number < len(splits):
        raise ConfigError("no such split", expected=f"0 to {len(splits) - 1}", actual=number)
    return splits[number]


def store_facts(subject: Subject, number: int) -> dict[str, Any]:
    """Return the facts of a store, without reading its tokens."""
    store = subject.store(number)
    told = describe(store)
    splits = [
        _split_facts(index, store[name], told["splits"][name])
        for index, name in enumerate(store.splits)
    ]
    return {
        "index": number,
        "title": store.path.absolute().name,
        "fingerprint": store.fingerprint,
        "facts": {name: told[name] for name in told if name not in ("splits", "tokenizer")}
        | {"chat_template": recorded_template(store)},
        "splits": splits,
        "lengths": splits[0]["lengths"],
        "samples": splits[0]["samples"],
        "tokenizer": _tokenizer(subject, number),
        "report": _report(store),
    }


def _split_facts(index: int, split: Split, told: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("turns", "groups", "weights", "provenance", "records")
    buckets = told["lengths"]["histogram"]
    lows = [bucket["at_least_tokens"] for bucket in buckets]
    return {
        "index": index,
        "name": split.name,
        "documents": told["documents"],
        "tokens": told["tokens"],
        "bytes": told["bytes"],
        "has": [name for name in kept if told[name]],
        "shards": [
            {"name": shard.name, "tokens": shard.num_tokens, "documents": shard.num_documents}
            for shard in split.shards[:MOST_SHARDS]
        ],
        "more_shards": max(len(split.shards) - MOST_SHARDS, 0),
        "lengths": {
            # A bucket of lengths from n on ends before 2 n; that of no tokens before 1.
            "edges": [*lows, max(2 * lows[-1], 1)] if lows else [],
            "counts": [bucket["documents"] for bucket in buckets],
            "sampled": told["lengths"]["sampled"],
        },
        "samples": sample_numbers(split.num_documents or 0),
    }


def sample_numbers(num_documents: int) -> list[int]:
    """Return the numbers of some documents, evenly over a split."""
    last = num_documents - 1
    return np.linspace(0, last, min(NUM_SAMPLES, last + 1)).astype(np.int64).tolist()


def _report(store: Store) -> dict[str, Any] | None:
    """Return what the build that made the store recorded of itself."""
    note = None if store.manifest is None else store.manifest.notes.get(REPORT_NOTE)
    return dict(note) if isinstance(note, Mapping) else None


def recorded_template(store: Store) -> str | None:
    """Return the chat template that a build recorded, with its arguments and date."""
    settings = (_report(store) or {}).get("settings")
    return told_template(settings) or None if isinstance(settings, Mapping) else None


def _tokenizer(subject: Subject, number: int) -> dict[str, Any]:
    """Return what is recorded of the store's tokenizer, and whether it is at hand."""
    recorded, spelling = subject.stores[number].tokenizer or {}, subject.id_texts[number]
    controls = recorded.get("control_ids")
    if spelling is not None:
        controls = spelling.tokenizer.control_ids
    return {
        "name": recorded.get("name") or recorded.get("kind"),
        "fingerprint": subject.stores[number].tokenizer_fingerprint,
        "vocab_size": subject.stores[number].vocab_size,
        "control_ids": dict(controls) if isinstance(controls, Mapping) else {},
        "at_hand": spelling is not None,
    }
