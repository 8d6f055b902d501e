"""Put encoded chunks together, in order: drop, deduplicate, shuffle, split, cut.

Runs in one process, in the order of the source, and decides from document numbers
and contents alone, so its result is the same whoever encoded the chunks and when.
Memory: one chunk, or one shuffle buffer; with `deduplicate` 16 bytes of hash (and
Python's overhead, about 100 bytes) per document, with a global shuffle 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenreel.builder.plan import BuildPlan
from tokenreel.builder.report import Account
from tokenreel.builder.spill import Spill, Summary
from tokenreel.seeds import derive_key, scramble, shuffled
from tokenreel.store.batch import Documents, join_documents
from tokenreel.store.origins import read_origin

GLOBAL_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Documents with their numbers in the order of the source, int64 [n]."""

    documents: Documents
    numbers: np.ndarray

    def take(self, order: np.ndarray) -> Batch:
        """Return these documents, in this order."""
        return Batch(documents=self.documents.take(order), numbers=self.numbers[order])


def assemble(
    summaries: Iterable[Summary],
    spill: Spill,
    *,
    plan: BuildPlan,
    end_tokens: int,
    account: Account,
) -> Iterator[tuple[str, Documents]]:
    """Yield (split, documents) in their final order."""
    kept = _keep(_load(summaries, spill, account), spill, plan, end_tokens, account)
    for batch in _shuffled(kept, plan):
        yield from _dealt(batch, plan, account)
        if account.is_full("train"):
            return


def _load(
    summaries: Iterable[Summary], spill: Spill, account: Account
) -> Iterator[tuple[Summary, Batch]]:
    first = 0
    for summary in summaries:
        account.add_chunk(summary)
        numbers = np.arange(first, first + summary.documents)
        first += summary.documents
        yield summary, Batch(documents=read_documents(spill, summary.number), numbers=numbers)


def read_documents(spill: Spill, number: int) -> Documents:
    """Return the documents of an encoded chunk, its ids mapped."""
    arrays = spill.arrays(number)
    provenance = None
    if "origins" in arrays:
        strings, where = np.asarray(arrays["strings"]), Path(spill.folder)
        records = np.asarray(arrays["origins"])
        provenance = [read_origin(record, strings, where=where) for record in records]
    return Documents(
        ids=arrays["ids"],
        offsets=np.asarray(arrays["offsets"]),
        turns=arrays.get("turns"),
        turn_offsets=None if "turns" not in arrays else np.asarray(arrays["turn_offsets"]),
        provenance=provenance,
    )


def _keep(
    loaded: Iterable[tuple[Summary, Batch]],
    spill: Spill,
    plan: BuildPlan,
    end_tokens: int,
    account: Account,
) -> Iterator[Batch]:
    seen: set[bytes] = set()
    for summary, batch in loaded:
        lengths = np.diff(batch.documents.offsets)
        keep = lengths >= plan.min_tokens + end_tokens
        account.drop("too short", lengths[~keep])
        if plan.deduplicate:
            hashes = spill.arrays(summary.number)["hashes"]
            first = np.array([_is_new(bytes(item), seen) for item in hashes], bool)
            account.drop("duplicate", lengths[keep & ~first])
            keep &= first
        if keep.all():
            yield batch
        elif keep.any():
            yield batch.take(np.flatnonzero(keep))


def _is_new(item: bytes, seen: set[bytes]) -> bool:
    if item in seen:
        return False
    seen.add(item)
    return True


def _shuffled(batches: Iterable[Batch], plan: BuildPlan) -> Iterator[Batch]:
    if plan.shuffle == "none":
        yield from batches
    elif plan.shuffle == "buffer":
        for number, block in enumerate(_blocks(batches, plan.shuffle_buffer)):
            key = derive_key("shuffle", plan.seed, number)
            yield block.take(shuffled(len(block.numbers), key))
    else:
        yield from _globally(batches, plan)


def _blocks(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Regroup batches into blocks of `size` documents; the last may be smaller."""
    waiting: list[Batch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch.numbers)
        while count >= size:
            joined = _join(waiting)
            yield joined.take(np.arange(size))
            waiting = [joined.take(np.arange(size, count))]
            count -= size
    if count:
        yield _join(waiting)


def _join(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    return Batch(
        documents=join_documents([batch.documents for batch in batches]),
        numbers=np.concatenate([batch.numbers for batch in batches]),
    )


def _globally(batches: Iterable[Batch], plan: BuildPlan) -> Iterator[Batch]:
    """Shuffle all documents of the build: chunks stay mapped, documents are picked from them."""
    chunks = list(batches)
    starts = np.cumsum([0, *(len(chunk.numbers) for chunk in chunks)])
    order = shuffled(int(starts[-1]), derive_key("shuffle", plan.seed, "global"))
    for first in range(0, len(order), GLOBAL_BATCH):
        wanted = order[first : first + GLOBAL_BATCH]
        owner = np.searchsorted(starts, wanted, side="right") - 1
        # Picked chunk by chunk, then put into the order that is wanted.
        by_chunk = np.argsort(owner, kind="stable")
        parts = [
            chunks[number].take(wanted[owner == number] - starts[number])
            for number in np.unique(owner)
        ]
        place = np.empty(len(wanted), np.int64)
        place[by_chunk] = np.arange(len(wanted))
        yield _join(parts).take(place)


def _dealt(batch: Batch, plan: BuildPlan, account: Account) -> Iterator[tuple[str, Documents]]:
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
    split: str, documents: Documents, budget: int, account: Account
) -> tuple[Documents, Documents]:
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


def _kept(split: str, documents: Documents, account: Account) -> Iterator[tuple[str, Documents]]:
    if len(documents):
        account.keep(split, documents)
        yield split, documents
