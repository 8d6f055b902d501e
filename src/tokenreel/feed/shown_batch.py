"""A batch for people: counts in a line, and its rows token by token.

A token is trained if the model is asked for it: the label of the slot before it weighs something.
Its first rows and tokens are shown; what is left is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.display import count_of, drawn_or_none, few, never_raising

if TYPE_CHECKING:
    from tokenreel.display.spelling import Speller
    from tokenreel.display.token_chips import Chip
    from tokenreel.feed.batch import Batch
    from tokenreel.text.tokenizers import Tokenizer


def load_tokenizer(tokenizer: str | PathLike[str] | Tokenizer) -> Tokenizer:
    """Return the tokenizer that a name, a path or an object stands for."""
    from tokenreel.text import tokenizers  # only a text needs it

    return tokenizers.load_tokenizer(
        Path(tokenizer) if isinstance(tokenizer, PathLike) else tokenizer
    )


def told_batch(batch: Batch) -> str:
    """Return the facts of a batch in a line."""
    return f"Batch({', '.join(_facts(batch))})"


def _facts(batch: Batch) -> list[str]:
    *outer, seq_len = batch.input_ids.shape
    padding = int(np.count_nonzero(batch.segment_ids == 0))
    trained = int(np.count_nonzero(batch.loss_weights))
    return [
        f"step {batch.step:,}",
        f"{' x '.join(map(str, outer))} rows of {count_of(seq_len, 'token')}",
        f"{trained:,} trained",
        f"{batch.input_ids.size - padding - trained:,} context",
        f"{padding:,} padding",
        count_of(int(batch.segment_ids.max(axis=-1).sum()), "segment"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """The beginning of a row: its chips, and how many slots are not shown, or hold no token."""

    row: int
    source: int
    name: str
    chips: list[Chip]
    num_left: int
    num_padding: int
    facts: list[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShownBatch:
    """The rows of a batch as consoles and notebooks show them; `tokenizer` None: ids, not text.

    `sources`: the names of sources by their numbers, where they are known.
    """

    batch: Batch
    tokenizer: Tokenizer | None
    rows: int
    tokens: int
    sources: Sequence[str] = ()

    @never_raising
    def __repr__(self) -> str:
        from tokenreel.display.escaped import visible
        from tokenreel.display.token_marks import HATCH, bracketed, unmarked

        between = "" if self.tokenizer else " "
        lines = []
        for row in self._rows():
            texts = [(f"{unmarked(visible(chip.text))}{between}", chip) for chip in row.chips]
            left = f" … and {count_of(row.num_left, 'more token')}" if row.num_left else ""
            padding = f" {HATCH}{row.num_padding:,} padding" if row.num_padding else ""
            lines.append(f"row {row.row}, {row.name}: {bracketed(texts)}{left}{padding}")
        shown = few(lines, "rows", most=self.rows, total=self._num_rows)
        return "\n  ".join([told_batch(self.batch), *shown])

    @drawn_or_none
    def _repr_html_(self) -> str:
        from tokenreel.display.notebook import card, remark_html
        from tokenreel.display.style_sheet import PREFIX
        from tokenreel.display.token_chips import legend_html

        more = self._num_rows - self.rows
        rows = "".join(map(self._row_html, self._rows()))
        rest = remark_html(f"… and {count_of(more, 'more row')}" if more > 0 else "")
        return card("Batch", legend_html(prefix=PREFIX), rows, rest, facts=_facts(self.batch))

    def _row_html(self, row: ShownRow) -> str:
        from tokenreel.display.escaped import printed
        from tokenreel.display.notebook import row_html
        from tokenreel.display.style_sheet import PREFIX
        from tokenreel.display.token_chips import (
            chips_html,
            more_html,
            padding_html,
            swatch_html,
        )

        between = "" if self.tokenizer else " "
        inside = chips_html(row.chips, between=between, prefix=PREFIX)
        if row.num_left:
            left = f" … and {count_of(row.num_left, 'more token')}"
            inside += more_html(left, prefix=PREFIX)
        if row.num_padding:
            inside += padding_html(row.num_padding, prefix=PREFIX)
        source = printed(row.name)
        if row.source >= 0:
            source = f"{swatch_html(row.source, prefix=PREFIX)} {source}"
        chips = f'<div class="{PREFIX}chips">{inside}</div>'
        return row_html(f"row {row.row}", [source, *row.facts], chips)

    @property
    def _num_rows(self) -> int:
        return int(self.batch.source_ids.size)

    def _rows(self) -> Iterator[ShownRow]:
        segments = self.batch.segment_ids.reshape(self._num_rows, -1)
        weights = self.batch.loss_weights.reshape(self._num_rows, -1)
        speller = self._speller()
        for row in range(min(self.rows, self._num_rows)):
            used = int(np.count_nonzero(segments[row]))
            facts = [
                count_of(int(segments[row].max()), "segment"),
                f"{np.count_nonzero(weights[row]):,} trained",
            ]
            source = int(self.batch.source_ids.flat[row])
            yield ShownRow(
                row=row,
                source=source,
                name=self._name(source),
                chips=list(self._chips(row, min(used, self.tokens), speller)),
                num_left=max(used - self.tokens, 0),
                num_padding=segments.shape[1] - used,
                facts=facts,
            )

    def _name(self, source: int) -> str:
        if source < 0:
            return "filled up"
        return self.sources[source] if self.sources else f"source {source}"

    def _speller(self) -> Speller:
        from tokenreel.display.spelling import Speller

        if self.tokenizer is None:
            return Speller()
        names = {number: name for name, number in self.tokenizer.control_ids.items()}
        return Speller(decode=self.tokenizer.decode, control_names=names)

    def _chips(self, row: int, stop: int, speller: Speller) -> Iterator[Chip]:
        """Yield the first tokens of a row; ids that are one character together are one chip."""
        from tokenreel.display.token_chips import Chip

        batch, width = self.batch, self.batch.input_ids.shape[-1]
        ids, segments, positions, weights = (
            values.reshape(-1, width)[row][:stop].tolist()
            for values in (
                batch.input_ids,
                batch.segment_ids,
                batch.position_ids,
                batch.loss_weights,
            )
        )
        # What the model is asked for in a slot is the token of the next one, if it goes on there.
        asked = [
            weights[slot - 1] if position > 0 else 0.0 for slot, position in enumerate(positions)
        ]
        for spelled in speller.spell(ids, segments):
            first, last = spelled.start, spelled.stop - 1
            weight = asked[last]
            told = f"segment {segments[last]}, position {positions[last]}"
            yield Chip(
                ids=tuple(ids[first : spelled.stop]),
                text=spelled.text,
                weight=weight,
                is_control=spelled.is_control,
                begins=segments[first] > 1 and positions[first] == 0,
                told=f"{told}, weight {weight:g}" if weight > 0 else f"{told}, context",
            )
