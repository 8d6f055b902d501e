"""Documents on their way into a store: many of them, end to end, in a few arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenreel.errors import InputError
from tokenreel.store.manifest import Facts
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import TURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Documents end to end: document i is `ids[offsets[i]:offsets[i + 1]]`.

    ids: integers [total]; offsets: int64 [n + 1], from 0.
    turns: TURN [total turns], starts counted from their document's first token,
    with turn_offsets int64 [n + 1]. weights: [total]. provenance: n of them.
    """

    ids: np.ndarray
    offsets: np.ndarray
    turns: np.ndarray | None = None
    turn_offsets: np.ndarray | None = None
    weights: np.ndarray | None = None
    provenance: Sequence[Provenance | None] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> Documents:
        """Return documents start to stop, sharing memory."""
        first, last = self.offsets[start], self.offsets[stop]
        turns, turn_offsets = self.turns, self.turn_offsets
        if turns is not None and turn_offsets is not None:
            turns = turns[turn_offsets[start] : turn_offsets[stop]]
            turn_offsets = turn_offsets[start : stop + 1] - turn_offsets[start]
        return Documents(
            ids=self.ids[first:last],
            offsets=self.offsets[start : stop + 1] - first,
            turns=turns,
            turn_offsets=turn_offsets,
            weights=None if self.weights is None else self.weights[first:last],
            provenance=None if self.provenance is None else self.provenance[start:stop],
        )


def check_documents(documents: Documents, facts: Facts) -> None:
    """Refuse arrays that do not belong together, before anything is written."""
    offsets = documents.offsets
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(documents.ids):
        raise InputError("offsets do not cover the ids", expected=len(documents.ids))
    if (np.diff(offsets) < 0).any():
        raise InputError("offsets must not decrease")
    given = {
        "turns": documents.turns is not None,
        "weights": documents.weights is not None,
        "provenance": documents.provenance is not None,
    }
    declared = {"turns": facts.turns, "weights": facts.weights is not None}
    for name, wanted in declared.items():
        if given[name] != wanted:
            raise InputError(
                f"{name} were {'not ' if wanted else ''}given, but the store was declared "
                f"with{'' if wanted else 'out'} them",
                remedy=f"declare {name} when the writer is made, and give them with every document",
            )
    if given["provenance"] and not facts.provenance:
        raise InputError(
            "provenance was given, but the store was declared without it",
            remedy="declare provenance=True when the writer is made",
        )
    lengths = {"weights": len(documents.ids), "provenance": len(documents)}
    for name, expected in lengths.items():
        values = getattr(documents, name)
        if values is not None and len(values) != expected:
            raise InputError(f"wrong number of {name}", expected=expected, actual=len(values))
    if documents.turns is not None:
        _check_turns(documents)
    if documents.weights is not None:
        _check_weights(documents.weights, facts)


def _check_turns(documents: Documents) -> None:
    turns, offsets = documents.turns, documents.turn_offsets
    if (
        turns is None
        or offsets is None
        or turns.dtype != TURN
        or len(offsets) != len(documents) + 1
    ):
        raise InputError("turns need the TURN dtype and one turn offset more than documents")
    owner = np.repeat(np.arange(len(documents)), np.diff(offsets))
    starts = turns["start"].astype(np.int64)
    stops = starts + turns["length"]
    lengths = np.diff(documents.offsets)[owner]
    same = owner[1:] == owner[:-1]
    wrong = (starts < 0) | (stops > lengths)
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


def _check_weights(weights: np.ndarray, facts: Facts) -> None:
    fits = np.isin(weights, (0, 1)) if facts.weights == "uint8" else weights >= 0
    wrong = ~(fits & np.isfinite(weights))
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(
            f"bad loss weight at token {position:,} of the batch",
            expected="0 or 1" if facts.weights == "uint8" else "finite and >= 0",
            actual=weights[position],
        )
