"""Put encoded chunks together, in order: drop, deduplicate, shuffle, split, cut.

Runs in one process, in the order of the source, and decides from document numbers
and contents alone, so its result is the same whoever encoded the chunks and when.
Memory: one piece, or one shuffle buffer; with `deduplicate` 16 bytes of hash (and
Python's overhead, about 100 bytes) per document, with a global shuffle 56 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tokenreel.builder.build_plan import BuildPlan
from tokenreel.builder.report import Account
from tokenreel.builder.spill import Arrays, Spill, Summary
from tokenreel.builder.torch_order import torch_permutation
from tokenreel.seeds import derive_key, scramble, shuffled
from tokenreel.store.document_batch import DocumentBatch, join_documents
from tokenreel.store.document_records import Records
from tokenreel.store.origins import Origins

GLOBAL_BATCH = 4096
OPEN_CHUNKS = 2048  # far below the 65,530 mappings that Linux allows a process


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Documents with their numbers in the order of the source, int64 [n]."""

    documents: DocumentBatch
    numbers: np.ndarray

    def take(self, order: np.ndarray) -> Batch:
        """Return these documents, in this order."""
        return Batch(documents=self.documents.take(order), numbers=self.numbers[order])

    def part(self, start: int, stop: int) -> Batch:
        """Return documents start to stop, sharing memory."""
        return Batch(documents=self.documents.part(start, stop), numbers=self.numbers[start:stop])


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A piece of a chunk, and which of its documents are kept: int64 [kept]."""

    summary: Summary
    piece: int
    batch: Batch
    kept: np.ndarray

    def documents(self) -> Batch:
        """Return the documents that are kept."""
        if len(self.kept) == len(self.batch.numbers):
            return self.batch
        return self.batch.take(self.kept)


def assemble(
    summaries: Iterable[Summary],
    spill: Spill,
    *,
    plan: BuildPlan,
    end_tokens: int,
    account: Account,
) -> Iterator[tuple[str, DocumentBatch]]:
    """Yield (split, documents) in their final order."""
    account.policy = plan.policy if plan.is_chat else None
    account.expects_targets = not plan.prompts
    loaded = _load(summaries, spill, plan, plan.min_tokens + end_tokens, account)
    if plan.shuffle == "global":
        batches = _globally(loaded, spill, plan, account)
    else:
        batches = (piece.documents() for piece in loaded if len(piece.kept))
    if plan.shuffle in ("buffer", "torch-buffer"):
        batches = _in_buffers(batches, plan)
    for batch in batches:
        if account.is_full("train"):
            account.drop("over budget", np.diff(batch.documents.offsets))
        else:
            yield from _dealt(batch, plan, account)


def _load(
    summaries: Iterable[Summary], spill: Spill, plan: BuildPlan, min_tokens: int, account: Account
) -> Iterator[Loaded]:
    """Yield the pieces of all chunks, until training has all that it may have."""
    seen: set[bytes] = set()
    first = 0
    for summary in summaries:
        account.add_chunk(summary)
        for piece, arrays in enumerate(spill.pieces(summary)):
            documents = read_documents(arrays)
            numbers = np.arange(first, first + len(documents))
            first += len(documents)
            keep = _keep(arrays, min_tokens, seen if plan.deduplicate else None, account)
            batch = Batch(documents=documents, numbers=numbers)
            yield Loaded(summary=summary, piece=piece, batch=batch, kept=np.flatnonzero(keep))
        if account.is_full("train"):
            return


def read_documents(arrays: Arrays) -> DocumentBatch:
    """Return the documents of a piece, sharing its memory."""
    has_origins = "origins" in arrays
    return DocumentBatch(
        ids=arrays["ids"],
        offsets=arrays["offsets"],
        turns=arrays.get("turns"),
        turn_offsets=arrays.get("turn_offsets"),
        provenance=Origins(arrays["origins"], arrays["strings"]) if has_origins else None,
        records=Records(text=arrays["objects"], offsets=arrays["records"])
        if "records" in arrays
        else None,
    )


def _keep(arrays: Arrays, min_tokens: int, seen: set[bytes] | None, account: Account) -> np.ndarray:
    """Tell which documents of a piece are kept; `seen` are the hashes of those before."""
    lengths = np.diff(arrays["offsets"])
    keep = lengths >= min_tokens
    account.drop("too short", lengths[~keep])
    if seen is not None:
        is_new = np.array([_is_new(item, seen) for item in arrays["hashes"].tolist()], bool)
        account.drop("duplicate", lengths[keep & ~is_new])
        keep &= is_new
    return keep


def _is_new(item: bytes, seen: set[bytes]) -> bool:
    if item in seen:
        return False
    seen.add(item)
    return True


def _in_buffers(batches: Iterable[Batch], plan: BuildPlan) -> Iterator[Batch]:
    """Shuffle every `shuffle_buffer` documents among themselves."""
    permute = torch_permutation if plan.shuffle == "torch-buffer" else shuffled
    for number, block in enumerate(_blocks(batches, plan.shuffle_buffer)):
        key = derive_key("shuffle", plan.seed, number)
        yield block.take(permute(len(block.numbers), key))


def _blocks(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Regroup batches into blocks of `size` documents; the last may be smaller."""
    waiting: list[Batch] = []
    room = size
    for batch in batches:
        start, count = 0, len(batch.numbers)
        while count - start >= room:
            yield _join([*waiting, batch.part(start, start + room)])
            start, room, waiting = start + room, size, []
        if start < count:
            waiting.append(batch.part(start, count))
            room -= count - start
    if waiting:
        yield _join(waiting)


def _join(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    return Batch(
        documents=join_documents([batch.documents for batch in batches]),
        numbers=np.concatenate([batch.numbers for batch in batches]),
    )


def _globally(
    loaded: Iterable[Loaded], spill: Spill, plan: BuildPlan, account: Account
) -> Iterator[Batch]:
    """Shuffle all documents of the build: only where they lie is held in memory."""
    pieces: list[tuple[Summary, int]] = []
    kept: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for piece in loaded:
        pieces.append((piece.summary, piece.piece))
        kept.append(piece.kept)
        numbers.append(piece.batch.numbers[piece.kept])
        lengths.append(np.diff(piece.batch.documents.offsets)[piece.kept])
    if not pieces:
        return
    owner = np.repeat(np.arange(len(pieces)), [len(part) for part in kept])
    within, number, length = (np.concatenate(part) for part in (kept, numbers, lengths))
    order = shuffled(len(owner), derive_key("shuffle", plan.seed, "global"))
    opened = lru_cache(maxsize=OPEN_CHUNKS)(lambda which: _open(spill, *pieces[which]))
    for first in range(0, len(order), GLOBAL_BATCH):
        if account.is_full("train"):
            account.drop("over budget", length[order[first:]])
            return
        wanted = order[first : first + GLOBAL_BATCH]
        # Picked piece by piece, then put into the order that is wanted.
        by_piece = np.argsort(owner[wanted], kind="stable")
        picked = wanted[by_piece]
        bounds = np.flatnonzero(np.diff(owner[picked])) + 1
        groups = np.split(picked, bounds)
        parts = [opened(int(owner[group[0]])).take(within[group]) for group in groups]
        documents = parts[0] if len(parts) == 1 else join_documents(parts)
        place = np.empty(len(wanted), np.int64)
        place[by_piece] = np.arange(len(wanted))
        yield Batch(documents=documents.take(place), numbers=number[wanted])


def _open(spill: Spill, summary: Summary, piece: int) -> DocumentBatch:
    return read_documents(spill.pieces(summary)[piece])


def _dealt(batch: Batch, plan: BuildPlan, account: Account) -> Iterator[tuple[str, DocumentBatch]]:
    """Give each document to a split: by chance, or validation first and then training."""
    documents = batch.documents
    if plan.val_frac:
        val = is_validation(batch.numbers, plan)
        yield from _kept("val", documents.take(np.flatnonzero(val)), account)
        documents = documents.take(np.flatnonzero(~val))
    elif plan.val_tokens is not None:
        chosen, documents = _fill("val", documents, plan.val_tokens, account)
        yield from _kept("val", chosen, account)
    if plan.train_tokens is not None:
        chosen, rest = _fill("train", documents, plan.train_tokens, account)
        account.drop("over budget", np.diff(rest.offsets))
        documents = chosen
    yield from _kept("train", documents, account)


def is_validation(numbers: np.ndarray, plan: BuildPlan) -> np.ndarray:
    """Tell which documents are validation: a pure function of (seed, number)."""
    chances = scramble(numbers, derive_key("validation", plan.seed))
    return chances < np.uint64(int(plan.val_frac * 2**64))


def _fill(
    split: str, documents: DocumentBatch, budget: int, account: Account
) -> tuple[DocumentBatch, DocumentBatch]:
    """Return the documents that fill a budget, and the others.

    The last document is cut to fit; a chat is never cut, the first that does not fit ends it.
    """
    room = budget - account.tokens(split)
    if account.is_full(split) or not len(documents):
        return documents.part(0, 0), documents
    if documents.turns is not None:
        count = int(np.searchsorted(documents.offsets, room, side="right")) - 1
        chosen = documents.part(0, count)
    else:
        count = min(int(np.searchsorted(documents.offsets, room, side="left")), len(documents))
        chosen = documents.part(0, count)
        over = len(chosen.ids) - room
        if over > 0:
            account.truncate(over)
            chosen = chosen.cut(room)
    if count < len(documents) or len(chosen.ids) == room:
        account.fill(split)
    return chosen, documents.part(count, len(documents))


def _kept(
    split: str, documents: DocumentBatch, account: Account
) -> Iterator[tuple[str, DocumentBatch]]:
    if len(documents):
        account.keep(split, documents)
        yield split, documents
