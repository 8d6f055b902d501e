"""What both feeds show in a row that differs: documents, and tokens around the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError, MismatchError
from tokenreel.feed.feed import Feed
from tokenreel.feed.trace import ExplainedRow, Segment
from tokenreel.inspect.recorded_tokenizer import tokenizer_of
from tokenreel.inspect.step_comparison import RowComparison, StepComparison
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer
from tokenreel.text.tokenizers.forced import decode_what_is_known

SHOWN_BEFORE = 8  # slots before the first that differs, and from it on
SHOWN_FROM = 16

Decode = Callable[[Store, Sequence[int]], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """One side of a row: its segments, which of them holds the slot, ids from slot `start` on.

    text: of these ids; None where no tokenizer of the store is at hand.
    """

    epoch: int
    segments: Sequence[Segment]
    at_segment: int | None
    start: int
    ids: Sequence[int]
    text: str | None

    @property
    def segment(self) -> Segment | None:
        """The segment that holds the slot; None: it is padding there."""
        return None if self.at_segment is None else self.segments[self.at_segment]

    def as_dict(self) -> dict[str, Any]:
        """Return the side, ready for JSON."""
        return {
            "epoch": self.epoch,
            "segments": [segment.as_dict() for segment in self.segments],
            "at_segment": self.at_segment,
            "start": self.start,
            "ids": list(self.ids),
            "text": self.text,
        }


Sides = tuple[RowSide | None, RowSide | None]


def decoder(
    given: str | None, stores: tuple[Sequence[Store], Sequence[Store]], *, force: bool = False
) -> Decode:
    """Return a function from the ids of a store to text, by the tokenizer given or recorded.

    MismatchError if the given one is of no store on either side, unless `force`. Of a store of
    another tokenizer the recorded one serves, where it is at hand.
    """
    tokenizer = None if given is None else load_tokenizer(given)
    if tokenizer is not None and not force:
        _check_either_side(tokenizer, stores)
    found: dict[int, Tokenizer | None] = {}

    def decode(store: Store, ids: Sequence[int]) -> str | None:
        if id(store) not in found:
            found[id(store)] = _for_store(store, tokenizer, force=force)
        mine = found[id(store)]
        return None if mine is None else decode_what_is_known(mine, list(ids))

    return decode


def _check_either_side(tokenizer: Tokenizer, stores: tuple[Sequence[Store], ...]) -> None:
    recorded = {store.tokenizer_fingerprint for side in stores for store in side}
    if None not in recorded and tokenizer.fingerprint not in recorded:
        raise MismatchError(
            "the ids of the stores are of another tokenizer",
            differing={"tokenizer": (sorted(map(str, recorded)), tokenizer.fingerprint)},
            remedy="give the tokenizer that one was built with, or insist with force_tokenizer",
        )


def _for_store(store: Store, given: Tokenizer | None, *, force: bool) -> Tokenizer | None:
    if given is not None and (force or store.tokenizer_fingerprint in (None, given.fingerprint)):
        return given
    return tokenizer_of(store)


def sides_of_rows(a: Feed, b: Feed, compared: StepComparison, decode: Decode) -> dict[int, Sides]:
    """Return what both sides show in each row that differs, by the number of the row."""
    differing = [row for row in compared.rows if not row.is_same]
    if not differing:
        return {}
    return {
        row.row: (one, other)
        for row, one, other in zip(
            differing,
            _sides(a, compared.step, differing, 0, decode),
            _sides(b, compared.step, differing, 1, decode),
            strict=True,
        )
    }


def _sides(
    feed: Feed, step: int, rows: Sequence[RowComparison], number: int, decode: Decode
) -> list[RowSide | None]:
    """Return one side of each of these rows; None for rows that only fill up the step."""
    explained = {row.row: row for row in feed.explain(step).rows}
    stores = dict(zip([item.name for item in feed.recipe.sources], feed.stores, strict=True))
    shown = [row for row in rows if row.row in explained]
    batch = feed.rows(step, [row.row for row in shown])
    sides: dict[int, RowSide] = {}
    for at, row in enumerate(shown):
        name = row.sources[number]
        if name is None:
            raise ConfigError(f"row {row.row} of step {step:,} is padding and has documents")
        ids, segments = batch.input_ids[at], batch.segment_ids[at]
        sides[row.row] = _side(explained[row.row], row, ids, segments, stores[name], decode)
    return [sides.get(row.row) for row in rows]


def _side(
    explained: ExplainedRow,
    row: RowComparison,
    ids: np.ndarray,
    segment_ids: np.ndarray,
    store: Store,
    decode: Decode,
) -> RowSide:
    slot = row.first_slot or 0
    lead = int(np.argmax(segment_ids > 0))  # prompts are padded in front
    start = max(slot - SHOWN_BEFORE, lead)
    stop = min(slot + SHOWN_FROM, len(ids))
    shown = ids[start:stop][segment_ids[start:stop] > 0].tolist()
    return RowSide(
        epoch=explained.epoch,
        segments=explained.segments,
        at_segment=_segment_at(explained.segments, slot - lead),
        start=start,
        ids=shown,
        text=decode(store, shown) if shown else None,
    )


def _segment_at(segments: Sequence[Segment], token: int) -> int | None:
    """Return which segment holds a token of the row; None: none does."""
    ends = np.cumsum([segment.stop - segment.start for segment in segments])
    at = int(np.searchsorted(ends, token, side="right"))
    return at if token >= 0 and at < len(segments) else None
