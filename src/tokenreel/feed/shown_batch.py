"""A batch for people: counts in a line, and its rows token by token.

A token is trained if the model is asked for it: the label of the slot before it weighs something.
Its first rows and tokens are shown; what is left is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.display import Token, count_of, few, named, never_raising, table, token_rows

if TYPE_CHECKING:
    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed
    from tokenreel.text.tokenizers import Tokenizer

Decode = Callable[[list[int]], str]
INCOMPLETE = "\ufffd"  # what decoders put where bytes are no character
MOST_BYTES = 4  # of a character in UTF-8


def load_tokenizer(tokenizer: str | PathLike[str] | Tokenizer) -> Tokenizer:
    """Return the tokenizer that a name, a path or an object stands for."""
    from tokenreel.text import tokenizers  # only a text needs it

    return tokenizers.load_tokenizer(
        Path(tokenizer) if isinstance(tokenizer, PathLike) else tokenizer
    )


def told_batch(batch: Batch) -> str:
    """Return the facts of a batch in a line."""
    *outer, seq_len = batch.input_ids.shape
    padding = int(np.count_nonzero(batch.segment_ids == 0))
    trained = int(np.count_nonzero(batch.loss_weights))
    facts = [
        f"step {batch.step:,}",
        f"{' x '.join(map(str, outer))} rows of {count_of(seq_len, 'token')}",
        f"{trained:,} trained",
        f"{batch.input_ids.size - padding - trained:,} masked",
        f"{padding:,} padding",
        count_of(int(batch.segment_ids.max(axis=-1).sum()), "segment"),
    ]
    return named("Batch", facts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShownBatch:
    """The rows of a batch as a console and a notebook show them; `decode` None: ids, not text."""

    batch: Batch
    decode: Decode | None
    rows: int
    tokens: int

    @never_raising
    def __repr__(self) -> str:
        lines = []
        for label, tokens, left in self._rows():
            runs = groupby(tokens, key=lambda token: token.kind == "trained")
            texts = [("".join(token.text for token in run), trained) for trained, run in runs]
            text = "".join(f"[{text}]" if trained else text for text, trained in texts)
            lines.append(f"{label}: {text!r}{f' … and {left:,} more tokens' if left > 0 else ''}")
        shown = few(lines, "rows", most=self.rows, total=self._num_rows)
        return "\n  ".join([told_batch(self.batch), *shown])

    @property
    def _num_rows(self) -> int:
        return int(self.batch.source_ids.size)

    def _repr_html_(self) -> str:
        return token_rows(told_batch(self.batch), list(self._rows()), self._num_rows - self.rows)

    def _rows(self) -> Iterator[tuple[str, list[Token], int]]:
        segments = self.batch.segment_ids.reshape(self._num_rows, -1)
        for row in range(min(self.rows, self._num_rows)):
            source = int(self.batch.source_ids.flat[row])
            label = f"row {row}, source {source}" if source >= 0 else f"row {row}, filled up"
            used = int(np.count_nonzero(segments[row]))
            yield label, list(self._tokens(row, used)), used - self.tokens

    def _tokens(self, row: int, used: int) -> Iterator[Token]:
        """Yield the first tokens of a row, of which `used` are no padding.

        Ids that are one character together are one token here.
        """
        batch, width = self.batch, self.batch.input_ids.shape[-1]
        ids, segments, positions, weights = (
            values.reshape(-1, width)[row][: min(self.tokens, used)].tolist()
            for values in (
                batch.input_ids,
                batch.segment_ids,
                batch.position_ids,
                batch.loss_weights,
            )
        )
        held: list[int] = []
        for slot, (token, segment) in enumerate(zip(ids, segments, strict=True)):
            held.append(token)
            weight = weights[slot - 1] if positions[slot] > 0 else 0.0
            text = self._text(held)
            is_open = INCOMPLETE in text and len(held) < MOST_BYTES
            if is_open and slot + 1 < len(ids) and positions[slot + 1] > 0:
                continue
            told = f"{_words(held)}, segment {segment}, position {positions[slot]}"
            kind = "trained" if weight > 0 else "masked"
            begins = segment > 1 and positions[slot] == len(held) - 1
            told += f", weight {weight:g}" if kind == "trained" else ", masked"
            yield Token(text=text, kind=kind, told=told, begins=begins)
            held = []
        if used < width and used <= self.tokens:
            yield Token(text=f" {width - used:,} of padding", kind="padding", told="padding")

    def _text(self, ids: list[int]) -> str:
        """Return the text of ids; their numbers without a tokenizer, or where it has no such."""
        if self.decode is not None:
            try:
                return self.decode(ids)
            except Exception:
                return f"⟨{' '.join(map(str, ids))}⟩"
        return f"{ids[0]} "


def _words(ids: list[int]) -> str:
    return f"id {ids[0]}" if len(ids) == 1 else f"ids {' '.join(map(str, ids))}"


def told_feed(feed: Feed) -> str:
    """Return the facts of a feed: a line, and one for each source."""
    lines = [
        f"{name}: share {share:.1%}, {rows:,} rows ({kind}), {epochs:.2f} epochs so far, {path}"
        for name, share, rows, kind, epochs, path in source_facts(feed)
    ]
    return named("Feed", _facts_of(feed), few(lines, "sources"))


def feed_html(feed: Feed) -> str:
    """Return the facts of a feed as a table of its sources."""
    head = ("source", "share now", "rows", "made by", "epochs so far", "store")
    rows = [(name, f"{share:.1%}", *rest) for name, share, *rest in source_facts(feed)]
    return table(f"Feed: {', '.join(_facts_of(feed))}", head, rows)


def _facts_of(feed: Feed) -> list[str]:
    recipe, steps = feed.recipe, feed.num_steps
    parts = f" in {recipe.grad_accum} microbatches" if recipe.grad_accum > 1 else ""
    return [
        f"step {feed.step:,} of {'a run without end' if steps is None else f'{steps:,}'}",
        f"global batch of {recipe.global_batch_size:,} rows of {recipe.seq_len:,} tokens{parts}",
        f"seed {recipe.seed}",
        *([f"passes {recipe.passes}"] if recipe.passes is not None else []),
    ]


def source_facts(feed: Feed) -> list[tuple[str, float, int, str, float, str]]:
    """Return name, share, rows, kind of rows, epochs so far and path of each source."""
    position = feed.step * feed.recipe.global_batch_size
    num_rows, epochs = [plan.num_rows for plan in feed.plans], feed.epoch_of(feed.step)
    shares = feed.order.shares_at(position)
    if shares is None:  # one source after the other: of the whole run
        shares = np.array(num_rows) / sum(num_rows)
    return [
        (item.name, share, rows, item.rows, epochs[item.name], str(item.path))
        for item, share, rows in zip(feed.recipe.sources, shares.tolist(), num_rows, strict=True)
    ]
