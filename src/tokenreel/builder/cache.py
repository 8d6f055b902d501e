"""Build the token caches of contract 002, by way of native stores.

    source ──► build() ──► native store ──► train/, val/, meta.json     by hard links
                        .NAME.build/…       NAME/                       appears whole

All that the builder promises holds: bounded memory, the same bytes for any number
of workers, and a build that was killed goes on where it was, unless its source is
an iterator, which begins anew. What is drawn by chance is drawn from torch's
generator (torch_order.py). On the way a cache needs two to three times its size on
disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.builder.cache_builder import CacheBuilder
from tokenreel.builder.cache_target import NOT_BUILT, building, discard, read_kept, read_meta
from tokenreel.builder.torch_order import choose_validation
from tokenreel.errors import EmptyError
from tokenreel.store.export.batches import Carried, document_batches
from tokenreel.store.export.cache import (
    SPLITS,
    SftCacheWriter,
    write_meta,
    write_pretrain_shards,
)
from tokenreel.store.export.staging import staged_folder
from tokenreel.store.filesystem import LOCAL
from tokenreel.store.split import Split
from tokenreel.store.writer import SHARD_BYTES
from tokenreel.text.sources.folder import FileSource
from tokenreel.text.sources.protocol import TextSource


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
    """Fill validation, then training; what is over is not read. No validation: val_tokens 0."""
    facts = {
        **builder.facts(about),
        "shard_bytes": shard_bytes,
        "shuffle_buffer": shuffle_buffer,
        "max_train_tokens": train_tokens,
        "max_val_tokens": val_tokens,
    }
    if builder.keep and (kept := read_kept(out, facts)) is not None:
        return Cached(path=out, meta=kept, was_there=True)
    choices: dict[str, Any] = {"val_tokens": val_tokens or None, "train_tokens": train_tokens}
    if shuffle_buffer is not None:
        choices |= {"shuffle": "torch-buffer", "shuffle_buffer": shuffle_buffer}
    with building(out) as folder:
        store = builder.store(source, folder / "all", choices=choices, shard_bytes=shard_bytes)
        if "train" not in store.splits:
            discard(folder / "all")
            raise EmptyError(
                f"all documents together do not fill the {val_tokens:,} tokens of validation, "
                "so nothing is left to train on",
                where=out,
                actual=f"{store.num_tokens:,} tokens",
                remedy="ask for less validation (max_val_tokens), or give more documents",
            )
        facts["sources"] = _origins({"all": source})
        return _publish_shards(out, facts, store.splits)


def build_presplit(
    builder: CacheBuilder,
    sources: Mapping[str, TextSource],
    out: Path,
    *,
    about: Mapping[str, Any],
    shard_bytes: int = SHARD_BYTES,
) -> Cached:
    """Cache all of the source of each split; validation may be empty, training may not."""
    facts = {**builder.facts(about), "shard_bytes": shard_bytes}
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
        facts["sources"] = _origins(sources)
        return _publish_shards(out, facts, splits)


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
        with staged_folder(out.absolute(), LOCAL) as staged:
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
    with staged_folder(out.absolute(), LOCAL) as staged:
        write_pretrain_shards(staged, splits, filesystem=LOCAL)
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
