"""tokenreel explain RECIPE STEP: which documents a step shows."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.canonical import canonical_json
from tokenreel.cli.output import emit, notice, printable
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.cli.token_drawing import (
    SWATCH,
    chips,
    draw_legend,
    draw_line,
    draw_tokens,
    hue_style,
    shortened,
)
from tokenreel.cli.tokenizer_option import add_tokenizer
from tokenreel.display import count_of
from tokenreel.feed.feed import Feed
from tokenreel.feed.trace import Explained, ExplainedRow, Segment, check_within
from tokenreel.view.subject import subject_of

if TYPE_CHECKING:
    from rich.console import Console

    from tokenreel.text.tokenizers.id_texts import IdTexts

RECORD_CHARACTERS = 96


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument("step", type=int, help="the step, counted from 0")
    parser.add_argument("--row", type=int, help="only this row of the global batch, from 0")
    parser.add_argument(
        "--all", action="store_true", help="every token and record, also of long segments"
    )
    add_tokenizer(parser, purpose="show tokens by it (default: that of the store, if found)")


def run(args: argparse.Namespace) -> int:
    """Explain the step."""
    feed = open_feed(args)
    check_within(feed, args.step)  # of the run: what no training shows is not explained
    given = {"tokenizer": args.tokenizer, "force_tokenizer": args.force_tokenizer}
    # A program gets whole texts; a person the beginnings, for which not all is decoded.
    explained = feed.explain(args.step, **given if args.json else {})
    shown = explained if args.row is None else explained.only(args.row)
    if args.json:
        emit(args, shown.as_dict(), lambda console: None)
        return 0
    texts = subject_of(feed, title=args.recipe, **given).id_texts
    emit(args, {}, _Drawing(feed, shown, texts, is_whole=args.all).draw)
    if not any(texts):
        notice(args, "give --tokenizer to see the tokens")
    return 0


class _Drawing:
    """Draws the rows of a step, and their tokens where a tokenizer is at hand."""

    def __init__(
        self,
        feed: Feed,
        explained: Explained,
        id_texts: tuple[IdTexts | None, ...],
        *,
        is_whole: bool,
    ) -> None:
        self.feed, self.explained, self.is_whole = feed, explained, is_whole
        names = [source.name for source in feed.recipe.sources]
        self.sources = {name: number for number, name in enumerate(names)}
        self.id_texts = id_texts

    def draw(self, console: Console) -> None:
        rows = self.explained.rows
        weights = self.feed.rows(self.explained.step, [row.row for row in rows]).loss_weights
        for row, asked in zip(rows, weights, strict=True):
            self._draw_row(console, row, asked)
        if any(self.id_texts[self.sources[row.source]] is not None for row in rows):
            draw_legend(console)

    def _draw_row(self, console: Console, row: ExplainedRow, weights: np.ndarray) -> None:
        from rich.text import Text

        number = self.sources[row.source]
        trained = sum(segment.trained for segment in row.segments)
        line = Text(f"row {row.row}", "bold").append("  ", "not bold")
        if style := hue_style(console, number):
            line.append(f"{SWATCH} ", f"not bold {style}")
        told = f"{printable(row.source)}, epoch {row.epoch:,}, {trained:,} trained"
        console.print(line.append(told, "not bold"))
        # What the model is asked for is one behind: a token is the label of the slot before it.
        asked, at = np.concatenate([[0], weights]), 0
        for segment in row.segments:
            length = segment.stop - segment.start
            console.print(f"  {printable(_describe(segment))}", markup=False)
            self._draw_tokens(console, segment, number, asked[at : at + length])
            self._draw_record(console, segment)
            at += length

    def _draw_tokens(
        self, console: Console, segment: Segment, source: int, weights: np.ndarray
    ) -> None:
        id_texts = self.id_texts[source]
        if id_texts is None:
            return
        split = self.feed.plans[source].split
        first = 0 if segment.document is None else split.document_span(segment.document)[0]
        ids = split.read(first + segment.start, first + segment.stop).tolist()
        # Where a row is cut off, its last tokens are asked for by no label.
        asked = [*weights.tolist(), *[0.0] * (len(ids) - len(weights))]
        if self.is_whole:
            draw_tokens(console, chips(ids, asked, id_texts), indent=4)
            return
        begin, left, end = shortened(ids)
        parts = (chips(ids[part], asked[part], id_texts) for part in (begin, end))
        draw_line(console, next(parts), left, next(parts), indent=4)

    def _draw_record(self, console: Console, segment: Segment) -> None:
        if segment.record is None:
            return
        told = canonical_json(segment.record)
        if not self.is_whole and len(told) > RECORD_CHARACTERS:
            left = count_of(len(told) - RECORD_CHARACTERS, "character")
            told = f"{told[:RECORD_CHARACTERS]} … {left}"
        console.print(f"    record {printable(told)}", markup=False)


def _describe(segment: Segment) -> str:
    name = "stream" if segment.document is None else f"document {segment.document:,}"
    if segment.role_of_answer is not None:
        name = f"{name}, {segment.role_of_answer}"
    origin = f" · {segment.provenance}" if segment.provenance else ""
    return f"{name}, tokens {segment.start:,}–{segment.stop:,}, {segment.trained:,} trained{origin}"
