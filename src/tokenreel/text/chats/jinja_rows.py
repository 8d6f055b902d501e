"""Turn tables of chats that a model's template rendered: one chat alone, or all of one skeleton.

Turns begin where the template's loop takes the next message up; a message that wrote nothing has
none. A turn has one trained span: where there are more, the turn is cut between them.

For the chats of a skeleton every place is a column: `fixed_rows` computes the turns of all of them
at once, int64 [chats, rows], and tells for which of them that holds. The rest (a text that has no
tokens, a token on both sides of a border) are few, and go through `rows_of` one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.chats.jinja_masks import Masked
from tokenreel.text.chats.jinja_skeleton import Skeleton, Spot, Turn
from tokenreel.text.chats.jinja_tokens import Cutter, Places
from tokenreel.text.chats.messages import Chat
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded
from tokenreel.text.turns import ROLE_CODES, TURN

_FIELDS = ("start", "length", "head", "tail", "weight", "role")
_MAX_HEAD = int(np.iinfo(TURN["head"].type).max)
Row = tuple[int, int, int, int, float, int]  # the fields of TURN


def rows_of(chat: Chat, made: Masked, weights: Sequence[float], places: Places) -> list[Row]:
    """Return the turns of a chat: one for each message, more where its spans are several."""
    rows: list[Row] = []
    for index, start, stop in _ranges(made, len(chat.messages), places):
        role = ROLE_CODES[chat.messages[index].role]
        spans = [places.span(*span) for span in made.spans.get(index, ())]
        spans = [(max(a, start), min(b, stop)) for a, b in spans]
        spans = [(a, b) for a, b in spans if a < b]
        if not spans:
            rows.append((start, stop - start, 0, 0, 0.0, role))
            continue
        cuts = [start, *(before[1] for before, _ in pairwise(spans)), stop]
        for (first, last), (left, right) in zip(spans, pairwise(cuts), strict=True):
            row = (left, right - left, first - left, right - last, weights[index], role)
            rows.append(row)
            if max(row[2:4]) > _MAX_HEAD:
                raise InputError(
                    "the template writes too much around an answer",
                    where=str(chat.provenance),
                    expected=f"at most {_MAX_HEAD:,} tokens",
                    actual=max(row[2:4]),
                )
    return rows


def _ranges(made: Masked, num_messages: int, places: Places) -> list[tuple[int, int, int]]:
    """Return message, first and next token of each turn; a message that wrote nothing has none."""
    begins = [
        (index, 0 if place is None else places.around(place)[1])
        for index, place in made.begins(num_messages)
    ]
    stops = [*(start for _, start in begins[1:]), places.num_tokens]
    return [
        (index, start, stop)
        for (index, start), stop in zip(begins, stops, strict=True)
        if start < stop or index in made.spans
    ]


def turn_table(rows: Sequence[Row]) -> np.ndarray:
    """Return rows as TURN records."""
    turns = np.zeros(len(rows), TURN)
    for name, values in zip(_FIELDS, zip(*rows, strict=True), strict=False):
        turns[name] = values
    return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The chats of one skeleton.

    codes: int64 [chats, stretches], as in Cut; weights: of the messages, float [chats, messages].
    """

    skeleton: Skeleton
    codes: np.ndarray
    weights: np.ndarray
    roles: Sequence[int]


def fixed_rows(
    block: Block, cutter: Cutter, encoded: Encoded, text_of: Callable[[int], str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the turns of chats, TURN [chats, rows], and for which they hold, bool [chats]."""
    columns = _Columns(block, cutter, encoded, text_of)
    turns = block.skeleton.turns
    begins = [columns.around(turn.begin)[1] for turn in turns]
    stops = [*begins[1:], columns.num_tokens]
    rows: list[tuple[np.ndarray | float | int, ...]] = []
    holds = np.ones(len(block.codes), bool)
    for turn, begin, stop in zip(turns, begins, stops, strict=True):
        if not turn.spans:
            holds &= begin < stop
            rows.append((begin, stop - begin, 0, 0, 0.0, block.roles[turn.message]))
        for left, right, first, last in _parts(turn, begin, stop, columns):
            holds &= (first < last) & (np.maximum(first - left, right - last) <= _MAX_HEAD)
            weight, role = block.weights[:, turn.message], block.roles[turn.message]
            rows.append((left, right - left, first - left, right - last, weight, role))
    made = np.zeros((len(block.codes), len(rows)), TURN)
    for number, row in enumerate(rows):
        for name, values in zip(_FIELDS, row, strict=True):
            made[name][holds, number] = values[holds] if isinstance(values, np.ndarray) else values
    return made, holds


def _parts(
    turn: Turn, begin: np.ndarray, stop: np.ndarray, columns: _Columns
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Return begin, stop, and first and next trained token of the parts of a turn."""
    spans: list[tuple[np.ndarray, np.ndarray]] = []
    for start, end in turn.spans:
        first = np.maximum(columns.around(start)[1], begin)
        spans.append((first, np.minimum(columns.around(end)[0], stop)))
    cuts: list[np.ndarray] = [begin, *[last for _, last in spans[:-1]], stop]
    # A turn without spans has no parts.
    return [
        (left, right, first, last)
        for (left, right), (first, last) in zip(pairwise(cuts), spans, strict=False)
    ]


class _Columns:
    """Spots of a skeleton as places among the tokens of its chats."""

    def __init__(
        self, block: Block, cutter: Cutter, encoded: Encoded, text_of: Callable[[int], str]
    ) -> None:
        self._codes = block.codes
        self._cutter = cutter
        self._encoded = encoded
        self._text_of = text_of
        lengths = np.diff(encoded.offsets)
        num_chats, num_stretches = block.codes.shape
        sizes = np.ones((num_chats, num_stretches), np.int64)
        is_text = block.codes >= 0
        sizes[is_text] = lengths[block.codes[is_text]]
        # The first token of each stretch, and behind the last one: int64 [chats, stretches + 1].
        self._firsts = np.zeros((num_chats, num_stretches + 1), np.int64)
        np.cumsum(sizes, axis=1, out=self._firsts[:, 1:])

    @property
    def num_tokens(self) -> np.ndarray:
        """How many tokens each chat has."""
        return self._firsts[:, -1]

    def around(self, spot: Spot | None) -> tuple[np.ndarray, np.ndarray]:
        """Return how many tokens end at or before a spot, and how many begin before it."""
        if spot is None:
            nothing = np.zeros(len(self._codes), np.int64)
            return nothing, nothing
        firsts = self._firsts[:, spot.stretch]
        if spot.behind == 0:
            return firsts, firsts
        ended, begun = self._inside(spot)
        return firsts + ended, firsts + begun

    def _inside(self, spot: Spot) -> tuple[np.ndarray, np.ndarray]:
        """Return the same for a spot within texts, counted from the first token of the text.

        Most texts begin with the ids of what is before the spot; the others are cut one by one.
        """
        codes, is_first = self._codes[:, spot.stretch], spot.stretch == 0
        ended, begun = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
        rest = np.ones(len(codes), bool)
        if spot.behind > 0:
            head = self._cutter.head_ids(self._text_of(codes[0])[: spot.behind], is_first=is_first)
            if head is not None:
                ended[:] = begun[:] = len(head)
                rest = ~self._begin_with(codes, head)
        for code in np.unique(codes[rest]).tolist():
            text = self._text_of(code)
            place = spot.behind if spot.behind > 0 else len(text) + spot.behind
            cut = self._cutter.cut_ids(text, self._encoded[code], place, is_first=is_first)
            rows = np.flatnonzero(rest & (codes == code))
            ended[rows], begun[rows] = cut
        return ended, begun

    def _begin_with(self, codes: np.ndarray, head: np.ndarray) -> np.ndarray:
        """Tell which texts begin with these ids, bool [texts]."""
        starts, stops = self._encoded.offsets[codes], self._encoded.offsets[codes + 1]
        begins = stops - starts >= len(head)
        taken = starts[begins, None] + np.arange(len(head))
        begins[begins] = (self._encoded.ids[taken] == head).all(axis=1)
        return begins
