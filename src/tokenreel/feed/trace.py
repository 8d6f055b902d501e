"""From a step to its documents, and from a document to its steps.

Both go through the same row plan and order that made the batch, so they cannot
disagree with it. `where` costs in proportion to its hits, not to the steps between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.config.hints import brief, did_you_mean
from tokenreel.display import MOST_LINES, count_of, drawn_or_none, few, named, never_raising
from tokenreel.errors import ConfigError, StoreError
from tokenreel.feed.run_end import beyond
from tokenreel.order.schedule import MAX_TIME
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.ranges import cut_at_documents
from tokenreel.rows.row_plan import GroupPlan
from tokenreel.store.split import Split
from tokenreel.text.provenance import Provenance

if TYPE_CHECKING:
    from tokenreel.feed.feed import Feed
    from tokenreel.text.tokenizers import Tokenizer

Decode = Callable[[np.ndarray], str]
MOST_TEXT = 60  # characters of a segment in its repr


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Tokens start to stop of a document in a row; `trained` of them are targets that weigh.

    Where documents are not known `document` is None, and start and stop count through the split.
    `text` is there where a tokenizer was given; `record`, what else is known of the document,
    where the store keeps it; `role_of_answer`, in rows of pairs: preferred, rejected or a rank.
    """

    source: str
    document: int | None
    start: int
    stop: int
    trained: int
    provenance: Provenance | None
    text: str | None = None
    record: Mapping[str, Any] | None = None
    role_of_answer: str | None = None

    @never_raising
    def __repr__(self) -> str:
        name = "documents unknown" if self.document is None else f"document {self.document:,}"
        shown = [f"{self.source!r} {name}", f"tokens {self.start:,} to {self.stop:,}"]
        origin = None if self.provenance is None else str(self.provenance)
        text = None if self.text is None else f"{self.text[:MOST_TEXT]!r}"
        facts = [*shown, self.role_of_answer, f"{self.trained:,} trained", origin, text]
        return named("Segment", facts)

    def as_dict(self) -> dict[str, object]:
        """Return the segment, ready for JSON."""
        origin = None if self.provenance is None else self.provenance.as_dict()
        optional = {
            "role_of_answer": self.role_of_answer,
            "text": self.text,
            "record": self.record,
        }
        return {
            "source": self.source,
            "document": self.document,
            "start": self.start,
            "stop": self.stop,
            "trained": self.trained,
            "provenance": origin,
            **{name: value for name, value in optional.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRow:
    """One row of a global batch; `document` is its only one, or None where there are several."""

    row: int
    source: str
    epoch: int
    segments: Sequence[Segment]

    @property
    def document(self) -> int | None:
        """The document of the row, if it shows just one."""
        documents = {segment.document for segment in self.segments}
        return documents.pop() if len(documents) == 1 else None

    @never_raising
    def __repr__(self) -> str:
        facts = [f"{self.row}, {self.source!r}, epoch {self.epoch:,}"]
        count = count_of(len(self.segments), "segment")
        return named("ExplainedRow", [*facts, count], few([*map(repr, self.segments)], "segments"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """All rows of a step; row r of a batch of the whole step is the r-th."""

    step: int
    rows: Sequence[ExplainedRow]

    def only(self, row: int) -> Explained:
        """Return the step with just one of its rows; ConfigError if it has no such row."""
        if not 0 <= row < len(self.rows):
            raise ConfigError(
                f"step {self.step:,} has no such row",
                expected=f"0 to {len(self.rows) - 1:,}",
                actual=row,
            )
        return replace(self, rows=[self.rows[row]])

    @never_raising
    def __repr__(self) -> str:
        facts = [f"step {self.step:,}", count_of(len(self.rows), "row")]
        shown = [_told_row(row) for row in self.rows[:MOST_LINES]]
        return named("Explained", facts, few(shown, "rows", total=len(self.rows)))

    @drawn_or_none
    def _repr_html_(self) -> str:
        from tokenreel.feed.shown_step import explained_html  # only notebooks ask for it

        return explained_html(self)

    def as_dict(self) -> dict[str, object]:
        """Return the step, ready for JSON."""
        return {
            "step": self.step,
            "rows": [
                {
                    "row": row.row,
                    "source": row.source,
                    "epoch": row.epoch,
                    "document": row.document,
                    "segments": [segment.as_dict() for segment in row.segments],
                }
                for row in self.rows
            ],
        }


def _told_row(row: ExplainedRow) -> str:
    documents = [
        "?" if segment.document is None else f"{segment.document:,}" for segment in row.segments
    ]
    trained = sum(segment.trained for segment in row.segments)
    shown = ", ".join(few(documents, ""))
    return (
        f"row {row.row}: {row.source!r} epoch {row.epoch:,}, {trained:,} trained, documents {shown}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A step and row that show tokens start to stop of a document."""

    epoch: int
    step: int
    row: int
    start: int
    stop: int


def explain(
    feed: Feed,
    step: int,
    *,
    tokenizer: str | PathLike[str] | Tokenizer | None = None,
    force_tokenizer: bool = False,
) -> Explained:
    """Say which documents a step shows; with a tokenizer, also their text."""
    _check_computable(feed, step)
    decode = None
    if tokenizer is not None:
        decode = _decoder(feed, tokenizer, force=force_tokenizer)
    located = feed.locate(step)
    weights = feed.batch(step).loss_weights.reshape(-1, feed.recipe.seq_len)
    rows: dict[int, ExplainedRow] = {}
    for source in np.unique(located.source).tolist():
        mine = np.flatnonzero(located.source == source)
        plan, name = feed.plans[source], feed.recipe.sources[source].name
        pieces = pieces_by_document(plan.split, plan.pieces(located.row[mine]))
        # Of each row the roles of its answers; each of them is a segment.
        groups = plan.answers(located.row[mine]) if isinstance(plan, GroupPlan) else None
        roles = None if groups is None else groups.roles()
        for i, row in enumerate(mine.tolist()):
            segments = _segments(name, plan.split, pieces, i, weights[row])
            if roles is not None:
                segments = [
                    replace(segment, role_of_answer=role)
                    for segment, role in zip(segments, roles[i], strict=True)
                ]
            if decode is not None:
                segments = [_with_text(segment, plan.split, decode) for segment in segments]
            rows[row] = ExplainedRow(
                row=row, source=name, epoch=int(located.epoch[row]), segments=segments
            )
    return Explained(step=step, rows=[rows[row] for row in sorted(rows)])


def check_number(step: int) -> None:
    """Raise ConfigError for a step that is no whole number from 0 on."""
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise ConfigError("bad step", expected="a whole number", actual=brief(step))
    if step < 0:
        raise ConfigError("bad step", expected=">= 0", actual=step)


def _check_computable(feed: Feed, step: int) -> None:
    """Raise ConfigError for a step that has no batch, whatever the recipe's `steps`."""
    check_number(step)
    size = feed.recipe.global_batch_size
    if (step + 1) * size > MAX_TIME:
        raise ConfigError("bad step", expected=f"below {int(MAX_TIME) // size:,}", actual=step)
    if feed.ending is not None and step >= feed.ending.steps:
        raise beyond(feed.ending, step)


def check_within(feed: Feed, step: int) -> None:
    """Raise ConfigError for a step that the run does not have.

    A run ends after the `steps` of its recipe; after its `passes`; or where a source has been
    shown `max_epochs` times, if that comes first. Without any of them every step is in it, up
    to the last position that can be computed.
    """
    _check_computable(feed, step)
    if feed.num_steps is not None and step >= feed.num_steps:
        raise ConfigError(
            f"the run ends after {feed.num_steps:,} steps, as its recipe says",
            expected=f"a step below {feed.num_steps:,}",
            actual=step,
            remedy="ask for a step of the run, or give the recipe more steps",
        )


def _decoder(feed: Feed, tokenizer: str | PathLike[str] | Tokenizer, *, force: bool) -> Decode:
    """Return a function from ids to text; MismatchError if the stores have another tokenizer."""
    from tokenreel.text.tokenizers import load_tokenizer  # only a text needs it
    from tokenreel.text.tokenizers.forced import decode_what_is_known

    loaded = load_tokenizer(Path(tokenizer) if isinstance(tokenizer, PathLike) else tokenizer)
    if force:
        return lambda ids: decode_what_is_known(loaded, ids.tolist())
    feed.check_tokenizer(loaded.fingerprint)
    return loaded.decode


def pieces_by_document(split: Split, pieces: Pieces) -> Pieces:
    """Cut pieces of unknown documents where documents end, if the split knows of every token."""
    if (pieces.document >= 0).all() or not split.has_documents:
        return pieces
    try:
        cut = cut_at_documents(split, pieces)
    except StoreError:
        return pieces
    return cut if int(cut.length.sum()) == int(pieces.length.sum()) else pieces


def _segments(
    source: str, split: Split, pieces: Pieces, row: int, weights: np.ndarray
) -> list[Segment]:
    segments: list[Segment] = []
    at = 0
    for p in range(int(pieces.row_offsets[row]), int(pieces.row_offsets[row + 1])):
        length = int(pieces.length[p])
        # A token is the label of the slot before it.
        trained = int(np.count_nonzero(weights[max(at - 1, 0) : at + length - 1]))
        at += length
        position = int(split.token_starts[pieces.shard[p]] + pieces.start[p])
        document = None if pieces.document[p] < 0 else int(pieces.document[p])
        start = position if document is None else position - split.document_span(document)[0]
        before = segments[-1] if segments else None
        is_next = before is not None and (before.document, before.stop) == (document, start)
        if before is not None and is_next and not pieces.first[p]:
            # Only a border of shards lies between them, not that of two answers.
            trained += before.trained
            segments[-1] = replace(before, stop=start + length, trained=trained)
            continue
        segments.append(
            Segment(
                source=source,
                document=document,
                start=start,
                stop=start + length,
                trained=trained,
                provenance=None if document is None else split.provenance(document),
                record=None if document is None else split.record(document),
            )
        )
    return segments


def _with_text(segment: Segment, split: Split, decode: Decode) -> Segment:
    first = 0 if segment.document is None else split.document_span(segment.document)[0]
    ids = split.read(first + segment.start, first + segment.stop)
    return replace(segment, text=decode(ids.astype(np.int64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Steps start to stop, all of which `where` looks at.

    `stop` None: every step from start on, for the source gives no more rows than were looked at.
    `goes_on`: the run has steps behind them, which may show a document again.
    """

    start: int
    stop: int | None
    goes_on: bool


def searched_steps(
    feed: Feed, source: str, *, start_step: int = 0, stop_step: int | None = None
) -> Searched:
    """Return the steps that `where` searches for documents of a source.

    Without `stop_step` up to the run's end or, where it has none, to the end of the next epoch.
    """
    number = _number_of(feed, source)
    if start_step < 0:
        raise ConfigError("bad start_step", expected=">= 0", actual=start_step)
    check_within(feed, start_step)
    ends = [end for end in (stop_step, feed.num_steps) if end is not None]
    stop = max(min(ends), start_step) if ends else _end_of_next_epoch(feed, number, start_step)
    goes_on = stop is not None and (feed.num_steps is None or stop < feed.num_steps)
    return Searched(start=start_step, stop=stop, goes_on=goes_on)


def _end_of_next_epoch(feed: Feed, number: int, start_step: int) -> int | None:
    """Return the step behind the one that ends the next epoch; None: it never ends."""
    size, num_rows = feed.recipe.global_batch_size, feed.plans[number].num_rows
    epoch = int(feed.order.counts(start_step * size)[number]) // num_rows
    last_row = feed.order.first_position(number, (epoch + 2) * num_rows - 1)
    return None if last_row < 0 else last_row // size + 1


def _number_of(feed: Feed, source: str) -> int:
    names = [item.name for item in feed.recipe.sources]
    if source not in names:
        raise ConfigError(
            "no such source",
            expected=", ".join(names),
            actual=repr(source),
            remedy=did_you_mean(source, names),
        )
    return names.index(source)


def where(
    feed: Feed, source: str, document: int, *, start_step: int, stop_step: int | None
) -> list[Hit]:
    """Say which of the steps that `searched_steps` names show a document."""
    number = _number_of(feed, source)
    num_documents = int(feed.plans[number].split.document_starts[-1])
    if not 0 <= document < num_documents:
        raise ConfigError(
            f"source {source!r} has no such document",
            expected=f"0 to {num_documents - 1:,}",
            actual=document,
        )
    steps = searched_steps(feed, source, start_step=start_step, stop_step=stop_step)
    size, num_rows = feed.recipe.global_batch_size, feed.plans[number].num_rows
    first = int(feed.order.counts(steps.start * size)[number]) // num_rows
    last = first + 1  # of which the last row never comes, if there is no stop
    if steps.stop is not None:
        last = int(feed.order.counts(steps.stop * size)[number]) // num_rows
    hits = []
    for row, start, stop in feed.plans[number].find(document):
        for epoch, position in feed.order.positions(number, row, epochs=range(first, last + 1)):
            step = position // size
            if steps.start <= step and (steps.stop is None or step < steps.stop):
                step, seat = feed.deal.seat(position)
                hits.append(Hit(epoch=epoch, step=step, row=seat, start=start, stop=stop))
    return sorted(hits, key=lambda hit: (hit.step, hit.row, hit.start))
