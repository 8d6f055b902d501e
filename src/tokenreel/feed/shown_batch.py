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
    from tokenreel.display.token_chips import Chip
    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed
    from tokenreel.text.tokenizers import Tokenizer
    from tokenreel.text.tokenizers.id_texts import IdTexts


def load_tokenizer(tokenizer: str | PathLike[str] | Tokenizer) -> Tokenizer:
    """Return the tokenizer that a name, a path or an object stands for."""
    from tokenreel.text import tokenizers  # only a text needs it

    return tokenizers.load_tokenizer(
        Path(tokenizer) if isinstance(tokenizer, PathLike) else tokenizer
    )


def _texts_of(tokenizer: Tokenizer) -> IdTexts:
    from tokenreel.text.tokenizers.id_texts import IdTexts  # only a text needs it

    return IdTexts(tokenizer)


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
    """The beginning of a row: its chips, and how many slots are not shown, or hold no token.

    `is_led`: padding stands in front of the tokens, as it does for prompts, and not behind.
    """

    row: int
    source: int
    name: str
    chips: list[Chip]
    num_left: int
    num_padding: int
    is_led: bool
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
            parts = [f"{bracketed(texts)}{left}"]
            if row.num_padding:
                parts.insert(0 if row.is_led else 1, f"{HATCH}{row.num_padding:,} padding")
            lines.append(f"row {row.row}, {row.name}: {' '.join(parts)}")
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
            padding = padding_html(row.num_padding, prefix=PREFIX)
            inside = f"{padding} {inside}" if row.is_led else f"{inside}{padding}"
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
        id_texts = None if self.tokenizer is None else _texts_of(self.tokenizer)
        for row in range(min(self.rows, self._num_rows)):
            used = int(np.count_nonzero(segments[row]))
            lead = int(np.argmax(segments[row] > 0)) if used else 0
            shown = slice(lead, lead + min(used, self.tokens))
            facts = [
                count_of(int(segments[row].max()), "segment"),
                f"{np.count_nonzero(weights[row]):,} trained",
            ]
            source = int(self.batch.source_ids.flat[row])
            yield ShownRow(
                row=row,
                source=source,
                name=self._name(source),
                chips=list(self._chips(row, shown, id_texts)),
                num_left=max(used - self.tokens, 0),
                num_padding=segments.shape[1] - used,
                is_led=lead > 0,
                facts=facts,
            )

    def _name(self, source: int) -> str:
        if source < 0:
            return "filled up"
        return self.sources[source] if self.sources else f"source {source}"

    def _chips(self, row: int, shown: slice, id_texts: IdTexts | None) -> Iterator[Chip]:
        """Yield the tokens of some slots; ids that are one character together are one chip."""
        from tokenreel.display.token_chips import Chip, text_ranges

        batch, width = self.batch, self.batch.input_ids.shape[-1]
        ids, segments, positions, weights = (
            values.reshape(-1, width)[row][shown].tolist()
            for values in (
                batch.input_ids,
                batch.segment_ids,
                batch.position_ids,
                batch.loss_weights,
            )
        )
        begins = {slot for slot, position in enumerate(positions) if position == 0}
        texts: Sequence[str | None] = list(map(str, ids))
        if id_texts is not None:
            texts = id_texts.of(ids, begins=begins)
        controls = {} if id_texts is None else id_texts.control_names
        for first, after in text_ranges(texts):
            slot = after - 1
            # What the model is asked for in a slot is the token of the next, if it goes on there.
            weight = 0.0 if slot in begins else weights[slot - 1]
            told = f"segment {segments[slot]}, position {positions[slot]}"
            yield Chip(
                ids=tuple(ids[first:after]),
                text=texts[slot] or "",
                weight=weight,
                is_control=ids[slot] in controls,
                begins=segments[first] > 1 and first in begins,
                told=f"{told}, weight {weight:g}" if weight > 0 else f"{told}, context",
            )


def show_batch(
    feed: Feed,
    batch: Batch,
    *,
    tokenizer: str | PathLike[str] | Tokenizer | None,
    rows: int,
    tokens: int,
) -> ShownBatch:
    """Show a batch of a feed: by the names of its sources, and no tokenizer but that of them."""
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    if loaded is not None:
        feed.check_tokenizer(loaded.fingerprint)
    names = [source.name for source in feed.recipe.sources]
    return ShownBatch(batch=batch, tokenizer=loaded, rows=rows, tokens=tokens, sources=names)
