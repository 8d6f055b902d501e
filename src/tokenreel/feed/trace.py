"""From a step to its documents, and from a document to its steps.

Both go through the same row plan and order that made the batch, so they cannot
disagree with it. `where` costs in proportion to its hits, not to the steps between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.plan import RowPlan
from tokenreel.rows.windows import Windows
from tokenreel.text.provenance import Provenance

if TYPE_CHECKING:
    from tokenreel.feed.feed import Feed


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Tokens start to stop of a document in a row; `trained` of them are targets that weigh."""

    source: str
    document: int | None
    start: int
    stop: int
    trained: int
    provenance: Provenance | None

    def as_dict(self) -> dict[str, object]:
        """Return the segment, ready for JSON."""
        origin = None if self.provenance is None else self.provenance.as_dict()
        return {
            "source": self.source,
            "document": self.document,
            "start": self.start,
            "stop": self.stop,
            "trained": self.trained,
            "provenance": origin,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """All rows of a step."""

    step: int
    rows: Sequence[ExplainedRow]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A step and row that show tokens start to stop of a document."""

    epoch: int
    step: int
    row: int
    start: int
    stop: int


def explain(feed: Feed, step: int) -> Explained:
    """Say which documents a step shows."""
    size = feed.recipe.batch_size
    located = feed.order.locate(step * size, size)
    weights = feed.batch(step).loss_weights.reshape(size, -1)
    rows: dict[int, ExplainedRow] = {}
    for source, item in enumerate(feed.recipe.sources):
        mine = np.flatnonzero(located.source == source)
        plan = _by_document(feed.plans[source])
        pieces = plan.pieces(located.row[mine])
        for i, row in enumerate(mine.tolist()):
            segments = _segments(item.name, plan, pieces, i, weights[row])
            rows[row] = ExplainedRow(
                row=row, source=item.name, epoch=int(located.epoch[row]), segments=segments
            )
    return Explained(step=step, rows=[rows[row] for row in range(size)])


def _by_document(plan: RowPlan) -> RowPlan:
    if isinstance(plan, Windows) and plan.split.has_documents:
        return replace(plan, by_document=True)
    return plan


def _segments(
    source: str, plan: RowPlan, pieces: Pieces, row: int, weights: np.ndarray
) -> list[Segment]:
    segments = []
    at = 0
    for p in range(int(pieces.row_offsets[row]), int(pieces.row_offsets[row + 1])):
        length = int(pieces.length[p])
        # A token is the label of the slot before it.
        trained = int(np.count_nonzero(weights[max(at - 1, 0) : at + length - 1]))
        at += length
        number = int(pieces.document[p])
        shard, local = int(pieces.shard[p]), int(pieces.start[p])
        if number < 0:
            start = int(plan.split.token_starts[shard]) + local
            origin, document = None, None
        else:
            first, _ = plan.split.document_span(number)
            start = int(plan.split.token_starts[shard]) + local - first
            origin, document = plan.split.provenance(number), number
        segments.append(
            Segment(
                source=source,
                document=document,
                start=start,
                stop=start + length,
                trained=trained,
                provenance=origin,
            )
        )
    return segments


def where(
    feed: Feed, source: str, document: int, *, start_step: int, stop_step: int | None
) -> list[Hit]:
    """Say which steps show a document; without `stop_step`, in the epoch under way and the next."""
    names = [item.name for item in feed.recipe.sources]
    if source not in names:
        raise ConfigError("no such source", expected=", ".join(names), actual=repr(source))
    number = names.index(source)
    size, num_rows = feed.recipe.batch_size, feed.plans[number].num_rows
    first = int(feed.order.counts(start_step * size)[number]) // num_rows
    last = first + 1
    if stop_step is not None:
        last = int(feed.order.counts(stop_step * size)[number]) // num_rows
    hits = []
    for row, start, stop in feed.plans[number].find(document):
        for epoch, position in feed.order.positions(number, row, epochs=range(first, last + 1)):
            step = position // size
            if start_step <= step and (stop_step is None or step < stop_step):
                hit = Hit(epoch=epoch, step=step, row=position % size, start=start, stop=stop)
                hits.append(hit)
    return sorted(hits, key=lambda hit: (hit.step, hit.row, hit.start))
