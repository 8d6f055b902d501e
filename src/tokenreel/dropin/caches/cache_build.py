"""Build the token caches of contract 002, by way of native stores.

    source ──► build() ──► native store ──► train/, val/, meta.json     hard links or copies
                        .NAME.build/…       NAME/                       appears whole

The documents of a pretraining cache follow each other without a separator: the contract
names none, and "reconstructed sequences match original tokenization".

All that the builder promises holds: bounded memory, the same bytes for any number
of workers, and a build that was killed goes on where it was, unless its source is
an iterator, which begins anew. What is drawn by chance is drawn from torch's
generator. On the way a cache needs two to three times its size on
disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.builder.torch_order import torch_permutation
from tokenreel.dropin.caches.cache_builder import CacheBuilder
from tokenreel.dropin.caches.cache_folder import NOT_BUILT, building, read_kept, read_meta
from tokenreel.dropin.caches.cache_writer import (
    SPLITS,
    SftCacheWriter,
    write_meta,
    write_pretrain_shards,
    write_token_shards,
)
from tokenreel.errors import ConfigError, EmptyError
from tokenreel.filesystem import LOCAL
from tokenreel.layouts.split_batches import Carried, document_batches
from tokenreel.store.split import Split
from tokenreel.store.writer import SHARD_BYTES
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.named import num_validation
from tokenreel.text.sources.source_protocol import TextSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """A finished cache: where it is, its meta.json, and whether it was there before."""

    path: Path
    meta: dict[str, Any]
    was_there: bool = False


def build_budgeted(
    builder: CacheBuilder,
    source: TextSource,
    out: Path,
    *,
    about: Mapping[str, Any],
    val_tokens: int,
    train_tokens: int,
    shuffle_buffer: int | None,
    shard_bytes: int = SHARD_BYTES,
) -> Cached:
    """Give the first val_tokens of all tokens to validation, the next train_tokens to training.

    Both are ceilings: either split may end up with less, or with nothing. What is over
    is not read, but for the rest of the chunk in which both are full.
    """
    _check_budgets(val_tokens, train_tokens)
    facts = {
        **_pretrain_facts(builder, about, shard_bytes),
        "shuffle_buffer": shuffle_buffer,
        "max_train_tokens": train_tokens,
        "max_val_tokens": val_tokens,
    }
    if builder.keep and (kept := read_kept(out, facts)) is not None:
        return Cached(path=out, meta=kept, was_there=True)
    # The store on the way has one split, so that a document can be cut between the two.
    choices: dict[str, Any] = {"train_tokens": val_tokens + train_tokens}
    if shuffle_buffer is not None:
        choices |= {"shuffle": "torch-buffer", "shuffle_buffer": shuffle_buffer}
    with building(out) as folder:
        store = builder.store(source, folder / "all", choices=choices, shard_bytes=shard_bytes)
        facts["sources"] = _origins({"all": source})
        return _publish_stream(out, facts, store["train"])


def build_presplit(
    builder: CacheBuilder,
    sources: Mapping[str, TextSource],
    out: Path,
    *,
    about: Mapping[str, Any],
    shard_bytes: int = SHARD_BYTES,
) -> Cached:
    """Cache all of the source of each split; validation may be empty, training may not."""
    facts = _pretrain_facts(builder, about, shard_bytes)
    if builder.keep and (kept := read_kept(out, facts)) is not None:
        return Cached(path=out, meta=kept, was_there=True)
    splits: dict[str, Split] = {}
    with building(out) as folder:
        for name in SPLITS:
            try:
                store = builder.store(sources[name], folder / name, shard_bytes=shard_bytes)
                splits[name] = store["train"]
            except EmptyError:
                if name == "train":
                    raise
        return _publish_shards(out, {**facts, "sources": _origins(sources)}, splits)


def build_by_file(
    builder: CacheBuilder,
    source: FileSource,
    out: Path,
    *,
    about: Mapping[str, Any],
    val_frac: float,
    shard_bytes: int = SHARD_BYTES,
) -> Cached:
    """Cache all of some files; torch's generator chooses which of them are validation."""
    val = choose_validation(len(source.files), val_frac, seed=builder.seed)
    sources = {
        split: FileSource(
            [file for file, is_val in zip(source.files, val, strict=True) if is_val == wanted],
            name=source.name,
            options=source.options,
        )
        for split, wanted in (("train", False), ("val", True))
    }
    about = {**about, "val_frac": val_frac}
    return build_presplit(builder, sources, out, about=about, shard_bytes=shard_bytes)


def build_chats(
    builder: CacheBuilder,
    source: TextSource,
    out: Path,
    *,
    about: Mapping[str, Any],
    val_frac: float,
) -> Cached:
    """Cache chats; torch's generator chooses which of them are validation."""
    facts = {**builder.facts(about), "val_frac": val_frac}
    if builder.keep and (kept := read_kept(out, facts)) is not None:
        return Cached(path=out, meta=kept, was_there=True)
    choose_validation(0, val_frac, seed=builder.seed)  # a bad fraction shows before the work
    with building(out) as folder:
        split = builder.store(source, folder / "all", chat=True)["train"]
        val = choose_validation(split.num_documents or 0, val_frac, seed=builder.seed)
        with LOCAL.whole_folder(out) as staged:
            counts = _write_chats(staged, split, val, vocab_size=builder.tokenizer.vocab_size)
            meta = {**facts, **counts, "totals": counts, "sources": _origins({"all": source})}
            write_meta(staged, meta, filesystem=LOCAL)
    return Cached(path=out, meta=meta)


def build_stub(builder: CacheBuilder, out: Path, *, about: Mapping[str, Any]) -> Cached:
    """Make the folders of a cache that cannot be built, and say so in its meta.json."""
    if (meta := read_meta(out)) is not None and not meta.get(NOT_BUILT):
        return Cached(path=out, meta=meta, was_there=True)
    totals = {"train_tokens": 0, "val_tokens": 0}
    meta = {**builder.facts(about), **totals, "totals": totals, "shard_bytes": 0, NOT_BUILT: True}
    for name in SPLITS:
        LOCAL.make_dir(out.absolute() / name)
    write_meta(out, meta, filesystem=LOCAL)
    return Cached(path=out, meta=meta)


def choose_validation(num_documents: int, val_frac: float, *, seed: int) -> np.ndarray:
    """Return which documents are validation, in order: bool [num_documents].

    >>> int(choose_validation(10, 0.2, seed=1).sum())
    2
    """
    count = num_validation(num_documents, val_frac)
    chosen = np.zeros(num_documents, bool)
    chosen[torch_permutation(num_documents, seed)[:count]] = True
    return chosen


def _check_budgets(val_tokens: int, train_tokens: int) -> None:
    if min(val_tokens, train_tokens) < 0 or val_tokens + train_tokens == 0:
        raise ConfigError(
            "bad budgets of tokens",
            where="max_val_tokens, max_train_tokens",
            expected="0 or more each, and not 0 both",
            actual=f"{val_tokens:,} and {train_tokens:,}",
        )


def _pretrain_facts(
    builder: CacheBuilder, about: Mapping[str, Any], shard_bytes: int
) -> dict[str, Any]:
    # The separator is said because caches of former versions have one, and are not these.
    return {**builder.facts(about), "shard_bytes": shard_bytes, "document_separator": "none"}


def _origins(sources: Mapping[str, TextSource]) -> dict[str, dict[str, str | None]]:
    """Return fingerprint and revision of what was read; of an iterator neither is known."""
    origins = {}
    for name, source in sources.items():
        if source.can_seek:
            innermost = source.identity()
            while "source" in innermost:
                innermost = innermost["source"]
            revision = innermost.get("revision")
            origins[name] = {"fingerprint": source.fingerprint(), "revision": revision}
    return origins


def _publish_shards(out: Path, facts: Mapping[str, Any], splits: Mapping[str, Split]) -> Cached:
    counts = {f"{name}_tokens": splits[name].num_tokens if name in splits else 0 for name in SPLITS}
    documents = {
        f"{name}_documents": splits[name].num_documents if name in splits else 0 for name in SPLITS
    }
    meta = {**facts, **counts, "totals": {**counts, **documents}}
    with LOCAL.whole_folder(out) as staged:
        write_pretrain_shards(staged, splits, filesystem=LOCAL)
        write_meta(staged, meta, filesystem=LOCAL)
    return Cached(path=out, meta=meta)


def _publish_stream(out: Path, facts: Mapping[str, Any], stream: Split) -> Cached:
    """Cut one stream of tokens in two, validation first, and publish both as shards."""
    num_val = min(facts["max_val_tokens"], stream.num_tokens)
    bounds = {"train": (num_val, stream.num_tokens), "val": (0, num_val)}
    counts = {f"{name}_tokens": stop - start for name, (start, stop) in bounds.items()}
    if facts["max_train_tokens"] and not counts["train_tokens"]:
        logger.warning(
            "%s: train/ is empty: all %s tokens are validation, which may have %s (max_val_tokens)",
            out,
            f"{num_val:,}",
            f"{facts['max_val_tokens']:,}",
        )
    meta = {**facts, **counts, "totals": {**counts, "documents": stream.num_documents}}
    with LOCAL.whole_folder(out) as staged:
        for name in SPLITS:
            write_token_shards(
                staged / name,
                stream,
                bounds[name],
                shard_bytes=facts["shard_bytes"],
                filesystem=LOCAL,
            )
        write_meta(staged, meta, filesystem=LOCAL)
    return Cached(path=out, meta=meta)


def _write_chats(folder: Path, split: Split, val: np.ndarray, *, vocab_size: int) -> dict[str, int]:
    """Write each chat to its split, in order; return how many there are of them, and of tokens."""
    counts = {f"{name}_{what}": 0 for name in SPLITS for what in ("examples", "tokens")}
    writer = SftCacheWriter(folder, vocab_size=vocab_size, filesystem=LOCAL)
    first = 0
    try:
        for documents in document_batches(split, Carried()):
            chosen = val[first : first + len(documents)]
            first += len(documents)
            for name, mine in (("train", ~chosen), ("val", chosen)):
                part = documents.take(np.flatnonzero(mine))
                writer.add(part, split=name)
                counts[f"{name}_examples"] += len(part)
                counts[f"{name}_tokens"] += len(part.ids)
        writer.finish()
    finally:
        writer.close()
    return counts
