"""Turn a store of any layout into another layout.

    to "native"      documents, turns, weights and provenance all go along
    to "episodes"    documents; weights and turns as the mask
    to "megatron"    documents
    to "flat"        tokens; a shard never cuts a document

What a layout has no place for is left out, said aloud and named in the result.
Tokens go through in batches of a few megabytes. A native target that was killed is
continued when the same conversion runs again; the others appear whole or not at
all. Every id is checked against the vocabulary on the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from tokenreel.config.hints import choices_of
from tokenreel.config.keywords import check_keywords
from tokenreel.config.paths import usable_path
from tokenreel.config.sizes import parse_size
from tokenreel.errors import ConfigError, EmptyError, ExistsError, MismatchError
from tokenreel.filesystem import LOCAL, FileSystem
from tokenreel.layouts.episode_files_writer import EpisodesWriter
from tokenreel.layouts.flat_writer import FlatWriter
from tokenreel.layouts.listing import SPLIT_NAMES
from tokenreel.layouts.megatron_writer import MegatronWriter
from tokenreel.layouts.open_store import open_store
from tokenreel.layouts.split_batches import Carried, document_batches
from tokenreel.progress import SILENT, Progress, shown
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.manifest import TOKEN_DTYPES
from tokenreel.store.store import Store
from tokenreel.store.writer import SHARD_BYTES, StoreWriter

logger = logging.getLogger(__name__)

Target = Literal["native", "flat", "episodes", "megatron"]
FileFormat = Literal["npy", "bin"]
TARGETS = choices_of(Target)
SHARDED = ("native", "flat")
# What each layout has room for, beside the tokens.
ROOM = {
    "native": {"documents", "turns", "groups", "weights", "provenance", "records"},
    "episodes": {"documents", "turns", "weights"},
    "megatron": {"documents"},
    "flat": set[str](),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What was written: tokens and documents by split, and what had to stay behind."""

    path: Path
    layout: str
    num_tokens: dict[str, int]
    num_documents: dict[str, int]
    left_out: tuple[str, ...]
    tokens_left_out: int


class _Writer(Protocol):
    def add(self, documents: DocumentBatch, *, split: str) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    source: Store
    target: Path
    to: str
    vocab_size: int | None
    dtype: str | None
    shard_bytes: int
    file_format: str
    filesystem: FileSystem

    @property
    def limit(self) -> int:
        """The vocabulary, or where it is not known, all that the source's dtype can hold."""
        return self.vocab_size or min(int(np.iinfo(self.source.dtype).max) + 1, 2**32)


@check_keywords
def convert(
    source: Store | str | PathLike[str],
    target: str | PathLike[str],
    *,
    to: Target = "native",
    vocab_size: int | None = None,
    dtype: str | None = None,
    shard_size: int | str | None = None,
    file_format: FileFormat = "npy",
    progress: bool | Progress = SILENT,
    filesystem: FileSystem = LOCAL,
) -> Conversion:
    """Write `source`, a store or its path, to `target` in another layout.

    A source that needs declarations (a dtype, an eos_id) is opened with `open_store` first.
    `dtype` is that of the written tokens (native and flat; by default the smallest that
    holds the vocabulary); `shard_size` that of a file, in bytes or such as "128M" (native
    and flat); `file_format` is "npy" or "bin" (flat). `progress` True shows a bar in a terminal
    or notebook.

    >>> import tempfile, tokenreel
    >>> folder = tempfile.mkdtemp()
    >>> with tokenreel.StoreWriter(folder + "/store", vocab_size=256) as writer:
    ...     writer.add([104, 105])
    >>> convert(folder + "/store", folder + "/pair", to="megatron").num_tokens
    {'train': 2}
    """
    _check_arguments(to, dtype=dtype, shard_size=shard_size)
    size = SHARD_BYTES if shard_size is None else parse_size(shard_size, name="shard_size")
    source = source if isinstance(source, Store) else open_store(source)
    if source.num_tokens == 0:
        raise EmptyError("there are no tokens to convert", where=source.path)
    job = _Job(
        source=source,
        target=usable_path(target),
        to=to,
        vocab_size=vocab_size or source.vocab_size,
        dtype=dtype,
        shard_bytes=size,
        file_format=file_format,
        filesystem=filesystem,
    )
    _refuse_lost_groups(job)
    left_out = _say_left_out(job)
    with shown(progress) as bar, _refusing_what_is_there(job.target):
        num_tokens, num_documents = _copy(job, bar)
    return Conversion(
        path=job.target,
        layout=to,
        num_tokens=num_tokens,
        num_documents=num_documents,
        left_out=left_out,
        tokens_left_out=_say_gaps(source, sum(num_tokens.values())),
    )


def _check_arguments(to: str, *, dtype: str | None, shard_size: int | str | None) -> None:
    if to not in SHARDED and (dtype, shard_size) != (None, None):
        raise ConfigError(
            f"the {to} layout has one file of a given dtype per split",
            remedy="leave out dtype and shard_size",
        )


def _refuse_lost_groups(job: _Job) -> None:
    """Refuse a layout in which a rejected answer would be text like any other."""
    if "groups" in _present(job.source) - ROOM[job.to]:
        raise ConfigError(
            f"the {job.to} layout cannot tell a preferred answer from a rejected one",
            where=job.source.path,
            expected="a store without groups of answers",
            remedy='convert to "native", or build a store of the preferred answers alone',
        )


@contextmanager
def _refusing_what_is_there(target: Path) -> Iterator[None]:
    """Say what a conversion can do about a target that is there: it lacks a writer's keywords."""
    remedy = "choose another folder, or remove this one"
    try:
        yield
    except ExistsError as error:
        raise ExistsError(error.what, where=target, actual=error.actual, remedy=remedy) from None
    except MismatchError as error:
        raise MismatchError(
            "another conversion was begun here and is unfinished",
            where=target,
            differing=error.differing,
            remedy=remedy,
        ) from None


def _copy(job: _Job, progress: Progress) -> tuple[dict[str, int], dict[str, int]]:
    num_tokens = dict.fromkeys(job.source, 0)
    num_documents = dict.fromkeys(job.source, 0)
    carried = _carried(job)
    with _writing(job, carried) as add:
        for name, split in job.source.splits.items():
            progress.start(f"convert {name}", total=split.num_tokens, unit="tokens")
            for documents in document_batches(split, carried):
                add(documents, name)
                num_tokens[name] += len(documents.ids)
                num_documents[name] += len(documents)
                progress.advance(len(documents.ids))
    return num_tokens, num_documents


@contextmanager
def _writing(job: _Job, carried: Carried) -> Iterator[Callable[[DocumentBatch, str], None]]:
    """Yield what appends documents to a split of the target; the end of the block commits it."""
    if job.to == "native":
        with _native_writer(job, carried) as store_writer:
            yield lambda documents, split: store_writer.add_batch(documents, split=split)
        return
    with job.filesystem.whole_folder(job.target) as folder:
        writer = _foreign_writer(job, folder)
        try:
            yield lambda documents, split: writer.add(documents, split=split)
            writer.finish()
        finally:
            writer.close()


def _native_writer(job: _Job, carried: Carried) -> StoreWriter:
    source = job.source
    return StoreWriter(
        job.target,
        vocab_size=job.limit,
        dtype=job.dtype,
        shard_bytes=job.shard_bytes,
        turns=carried.turns,
        groups=carried.turns and any(split.has_groups for split in source.splits.values()),
        weights=carried.weights,
        provenance=carried.provenance,
        records=carried.records,
        tokenizer=source.tokenizer,
        build={"converted_from": {"layout": source.layout, "fingerprint": source.fingerprint}},
        filesystem=job.filesystem,
    )


def _foreign_writer(job: _Job, folder: Path) -> _Writer:
    if job.to == "episodes":
        return EpisodesWriter(folder, vocab_size=job.limit, filesystem=job.filesystem)
    if job.to == "megatron":
        return MegatronWriter(folder, vocab_size=job.limit, filesystem=job.filesystem)
    dtype = job.dtype or ("uint16" if job.limit <= 2**16 else "uint32")
    if dtype not in TOKEN_DTYPES:
        raise ConfigError("bad token dtype", expected=" or ".join(TOKEN_DTYPES), actual=dtype)
    return FlatWriter(
        folder,
        job.source,
        vocab_size=job.vocab_size,
        dtype=np.dtype(f"<u{np.dtype(dtype).itemsize}"),
        shard_bytes=job.shard_bytes,
        file_format=job.file_format,
        filesystem=job.filesystem,
    )


def _carried(job: _Job) -> Carried:
    """Return what goes along: all that the source has and the target has room for."""
    present = _present(job.source) & ROOM[job.to]
    weights = None
    if "weights" in present:
        kinds = {
            shard.weight_file.dtype.kind
            for split in job.source.splits.values()
            for shard in split.shards
            if shard.weight_file is not None
        }
        weights = "float32" if "f" in kinds else "uint8"
    return Carried(
        turns="turns" in present,
        weights=weights,
        provenance="provenance" in present,
        records="records" in present,
    )


def _present(source: Store) -> set[str]:
    shards = [shard for split in source.splits.values() for shard in split.shards]
    present = {
        "documents": any(shard.index_file is not None for shard in shards),
        "turns": any(shard.turn_file is not None for shard in shards),
        "groups": any(shard.has_groups for shard in shards),
        "weights": any(shard.weight_file is not None for shard in shards),
        "provenance": any(shard.origin_file is not None for shard in shards),
        "records": any(shard.record_file is not None for shard in shards),
    }
    return {name for name, there in present.items() if there}


def _say_left_out(job: _Job) -> tuple[str, ...]:
    """Say what the target layout has no place for, and that documents are not known."""
    source = job.source
    present = _present(source)
    left_out = tuple(sorted(present - ROOM[job.to]))
    if left_out:
        names = ", ".join(left_out)
        logger.warning("%s: the %s layout has no place for %s", job.target, job.to, names)
    if "documents" in ROOM[job.to] and source.num_documents is None:
        logger.warning(
            "%s: the documents of the %s layout are not known, so each file becomes one document; "
            "give eos_id to find them by their end token",
            source.path,
            source.layout,
        )
    if job.to == "megatron" and not set(source) & set(SPLIT_NAMES):
        logger.warning("%s: opened again, all pairs will be the split train", job.target)
    return left_out


def _say_gaps(source: Store, num_tokens: int) -> int:
    gaps = source.num_tokens - num_tokens
    if gaps:
        logger.warning("%s: %s tokens belong to no document and were left out", source.path, gaps)
    return gaps
