"""Documents on their way into a store: many of them, end to end, in a few arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenreel.display import count_of, named, never_raising
from tokenreel.errors import InputError
from tokenreel.store.document_records import Records
from tokenreel.store.manifest import Facts
from tokenreel.store.origins import Origins
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import TURN, find_bad_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentBatch:
    """Many documents for a writer, end to end: document i is `ids[offsets[i]:offsets[i + 1]]`.

    ids: integers [total]; offsets: int64 [n + 1], from 0.
    turns: TURN [total turns], starts counted from their document's first token,
    with turn_offsets int64 [n + 1]. weights: [total]. provenance: n of them. records: n objects,
    or None for a document without; kept as JSON.
    """

    ids: np.ndarray
    offsets: np.ndarray
    turns: np.ndarray | None = None
    turn_offsets: np.ndarray | None = None
    weights: np.ndarray | None = None
    provenance: Sequence[Provenance | None] | None = None
    records: Records | Sequence[Mapping[str, Any] | None] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @never_raising
    def __repr__(self) -> str:
        counts = [count_of(len(self), "document"), count_of(len(self.ids), "token")]
        optional = ("turns", "weights", "provenance", "records")
        kept = [name for name in optional if getattr(self, name) is not None]
        return named("DocumentBatch", [*counts, *kept])

    def part(self, start: int, stop: int) -> DocumentBatch:
        """Return documents start to stop, sharing memory."""
        first, last = self.offsets[start], self.offsets[stop]
        turns, turn_offsets = self.turns, self.turn_offsets
        if turns is not None and turn_offsets is not None:
            turns = turns[turn_offsets[start] : turn_offsets[stop]]
            turn_offsets = turn_offsets[start : stop + 1] - turn_offsets[start]
        return DocumentBatch(
            ids=self.ids[first:last],
            offsets=self.offsets[start : stop + 1] - first,
            turns=turns,
            turn_offsets=turn_offsets,
            weights=None if self.weights is None else self.weights[first:last],
            provenance=None if self.provenance is None else self.provenance[start:stop],
            records=None if self.records is None else self.records[start:stop],
        )

    def take(self, order: np.ndarray) -> DocumentBatch:
        """Return copies of the documents with these numbers, in this order."""
        ids, offsets = _gather(self.ids, self.offsets, order)
        turns, turn_offsets = self.turns, self.turn_offsets
        if turns is not None and turn_offsets is not None:
            turns, turn_offsets = _gather(turns, turn_offsets, order)
        return DocumentBatch(
            ids=ids,
            offsets=offsets,
            turns=turns,
            turn_offsets=turn_offsets,
            weights=None if self.weights is None else _gather(self.weights, self.offsets, order)[0],
            provenance=_take_provenance(self.provenance, order),
            records=None if self.records is None else _packed(self.records).take(order),
        )

    def cut(self, num_tokens: int) -> DocumentBatch:
        """Return the documents without what comes after their first `num_tokens` tokens.

        Not for documents with turns: a turn is never cut here.
        """
        stop = int(np.searchsorted(self.offsets, num_tokens, side="left"))
        kept = self.part(0, min(stop, len(self)))
        return replace(
            kept,
            ids=kept.ids[:num_tokens],
            offsets=np.minimum(kept.offsets, num_tokens),
            weights=None if kept.weights is None else kept.weights[:num_tokens],
        )


def join_documents(parts: Sequence[DocumentBatch]) -> DocumentBatch:
    """Return the documents of all parts, end to end; all have the same kinds of things."""
    first = parts[0]
    return DocumentBatch(
        ids=np.concatenate([part.ids for part in parts]),
        offsets=_join_offsets([part.offsets for part in parts]),
        turns=None
        if first.turns is None
        # Left to itself numpy would pack the records.
        else np.concatenate([part.turns for part in parts if part.turns is not None], dtype=TURN),
        turn_offsets=None
        if first.turn_offsets is None
        else _join_offsets([part.turn_offsets for part in parts if part.turn_offsets is not None]),
        weights=None
        if first.weights is None
        else np.concatenate([part.weights for part in parts if part.weights is not None]),
        provenance=_join_provenance([part.provenance for part in parts]),
        records=None
        if first.records is None
        else Records.join([_packed(part.records) for part in parts if part.records is not None]),
    )


def _packed(records: Records | Sequence[Mapping[str, Any] | None]) -> Records:
    return records if isinstance(records, Records) else Records.of(records)


def _take_provenance(
    origins: Sequence[Provenance | None] | None, order: np.ndarray
) -> Sequence[Provenance | None] | None:
    if origins is None or isinstance(origins, Origins):
        return None if origins is None else origins.take(order)
    return [origins[number] for number in order.tolist()]


def _join_provenance(
    parts: Sequence[Sequence[Provenance | None] | None],
) -> Sequence[Provenance | None] | None:
    if parts[0] is None:
        return None
    columns = [part for part in parts if isinstance(part, Origins)]
    if len(columns) == len(parts):
        return Origins.join(columns)
    return [origin for part in parts for origin in part or ()]


def _join_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _gather(
    values: np.ndarray, offsets: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the runs of `values` with these numbers, end to end, and their new offsets."""
    lengths = np.diff(offsets)[order]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    index = np.repeat(offsets[:-1][order] - starts[:-1], lengths) + np.arange(starts[-1])
    return values[index], starts


def check_documents(documents: DocumentBatch, facts: Facts) -> DocumentBatch:
    """Return the documents with int64 offsets; refuse arrays that do not belong together."""
    if documents.ids.ndim != 1:
        raise InputError("ids must be one row", expected="1 axis", actual=documents.ids.ndim)
    given = {
        "turns": (documents.turns is not None, facts.turns),
        "weights": (documents.weights is not None, facts.weights is not None),
    }
    for name, (is_given, is_declared) in given.items():
        if is_given != is_declared:
            raise InputError(
                f"{name} were {'not ' if is_declared else ''}given, but the store was declared "
                f"with{'' if is_declared else 'out'} them",
                remedy=f"declare {name} when the writer is made, and give them with every document",
            )
    if documents.provenance is not None and not facts.provenance:
        raise InputError(
            "provenance was given, but the store was declared without it",
            remedy="declare provenance=True when the writer is made",
        )
    if documents.records is not None and not facts.records:
        raise InputError(
            "records were given, but the store was declared without them",
            remedy="declare records=True when the writer is made",
        )
    checked = replace(
        documents,
        offsets=_check_offsets(documents.offsets, len(documents.ids), name="offsets"),
        turns=None if documents.turns is None else _as_turns(documents.turns),
        turn_offsets=None
        if documents.turns is None
        else _check_offsets(documents.turn_offsets, len(documents.turns), name="turn_offsets"),
        records=None if documents.records is None else _packed(documents.records),
    )
    _check_lengths(checked)
    _check_turns(checked)
    _check_answers(checked, facts)
    _check_weights(checked.weights, facts)
    return checked


def _check_offsets(offsets: np.ndarray | None, stop: int, *, name: str) -> np.ndarray:
    if offsets is None or offsets.ndim != 1 or offsets.dtype.kind not in "ui" or not len(offsets):
        actual = None if offsets is None else f"{offsets.dtype} of shape {offsets.shape}"
        raise InputError(f"{name} must be one row of integers", actual=actual)
    if (offsets[1:] < offsets[:-1]).any():
        raise InputError(f"{name} must not decrease")
    if offsets[0] != 0 or offsets[-1] != stop:
        raise InputError(
            f"{name} do not cover what they divide",
            expected=f"0 to {stop:,}",
            actual=f"{offsets[0]:,} to {offsets[-1]:,}",
        )
    return offsets.astype(np.int64, copy=False)


def _check_lengths(documents: DocumentBatch) -> None:
    expected = {
        "weights": (len(documents.ids),),
        "provenance": (len(documents),),
        "turn_offsets": (len(documents) + 1,),
        "records": (len(documents),),
    }
    for name, shape in expected.items():
        values = getattr(documents, name)
        if values is None:
            continue
        actual = values.shape if isinstance(values, np.ndarray) else (len(values),)
        if actual != shape:
            raise InputError(f"wrong number of {name}", expected=shape[0], actual=str(actual))


def _as_turns(turns: np.ndarray) -> np.ndarray:
    """Return turns as TURN; np.concatenate, for one, leaves out the padding of a record."""
    fields = turns.dtype.names or ()
    if fields != TURN.names or any(turns.dtype[name] != TURN[name] for name in fields):
        raise InputError("turns need the TURN dtype", actual=str(turns.dtype))
    return turns.astype(TURN, copy=False)


def _check_turns(documents: DocumentBatch) -> None:
    turns, offsets = documents.turns, documents.turn_offsets
    if turns is None or offsets is None:
        return
    owner = np.repeat(np.arange(len(documents)), np.diff(offsets))
    starts = turns["start"].astype(np.int64)
    stops = starts + turns["length"]
    lengths = np.diff(documents.offsets)[owner]
    same = owner[1:] == owner[:-1]
    # A turn belongs to the document it starts in, so even an empty one must start inside.
    wrong = (starts < 0) | (starts >= lengths) | (stops > lengths)
    wrong |= turns["head"].astype(np.int64) + turns["tail"] > turns["length"]
    wrong[1:] |= same & (starts[1:] < stops[:-1])
    wrong |= ~np.isfinite(turns["weight"]) | (turns["weight"] < 0)
    if wrong.any():
        turn = int(np.argmax(wrong))
        number = int(owner[turn])
        raise InputError(
            "a turn lies outside its document, overlaps the one before, or has a bad weight",
            where=f"document {number} of the batch, turn {turn - int(offsets[number])}",
            actual=turns[turn].item(),
        )


def _check_answers(documents: DocumentBatch, facts: Facts) -> None:
    """Refuse turns of answers where the store has no groups, and groups that are none."""
    turns, offsets = documents.turns, documents.turn_offsets
    if turns is None or offsets is None:
        return
    counts = np.diff(offsets)
    owner = np.repeat(np.arange(len(documents)), counts)
    if not facts.groups:
        turn = None
        if turns["answer"].any() or turns["label"].any():
            turn = int(np.argmax((turns["answer"] > 0) | (turns["label"] > 0)))
        expected = "answer 0 and label 0, as the store was declared without groups"
    else:
        empty = np.flatnonzero((counts == 0) & (np.diff(documents.offsets) > 0))
        if len(empty):
            raise InputError(
                "a group without turns", where=f"document {int(empty[0])} of the batch"
            )
        turn = find_bad_answer(turns, owner, turns["start"].astype(np.int64))
        expected = (
            "answers 0, 1, 2, … of one label each, none empty, whose first turns begin with them"
        )
    if turn is not None:
        number = int(owner[turn])
        raise InputError(
            "a turn does not fit into a group of answers",
            where=f"document {number} of the batch, turn {turn - int(offsets[number])}",
            expected=expected,
            actual=f"answer {turns['answer'][turn]}, label {turns['label'][turn]}",
        )


def _check_weights(weights: np.ndarray | None, facts: Facts) -> None:
    if weights is None:
        return
    if weights.dtype.kind not in "buif":
        raise InputError("loss weights must be numbers", actual=str(weights.dtype))
    if facts.weights == "uint8":
        wrong = ~np.isin(weights, (0, 1))
    else:
        with np.errstate(over="ignore"):
            stored = weights.astype(np.float32, copy=False)
        wrong = ~(np.isfinite(stored) & (stored >= 0))
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(
            f"bad loss weight at token {position:,} of the batch",
            expected="0 or 1" if facts.weights == "uint8" else "finite and >= 0",
            actual=weights[position],
        )
