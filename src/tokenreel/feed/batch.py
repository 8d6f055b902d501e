"""What a trainer is handed."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.display import drawn_or_none, never_raising
from tokenreel.feed.one_a_row import slots_of_segments
from tokenreel.feed.shown_batch import ShownBatch, load_tokenizer, told_batch

if TYPE_CHECKING:
    from tokenreel.text.tokenizers import Tokenizer


@dataclass(slots=True, kw_only=True, eq=False)  # frozen, it would take 1.5 µs longer to make
class Batch:
    """A rank's rows of one step, [B, T] or, with accumulation, [A, B, T].

    input_ids, labels: int64, labels shifted and -100 where ignored; loss_weights:
    float32, the weight of each label; segment_ids: int32, from 1, 0 is padding;
    position_ids: int32, from 0 in each segment; source_ids: int32, [B] or [A, B], the number
    of each row's source in the recipe. A row that only fills up the shape is all padding and
    has source -1. document_ids, if asked for: int64, the number in its split of the document
    that each input token belongs to, -1 for padding and where documents are not known. records,
    if asked for: a list [B] or [A][B] of what the store keeps of each row's document; None for a
    row that is padding, shows several documents, or whose store keeps nothing.

    group_ids, answer_labels: int32, if some rows are pairs, or if asked for. The number of the
    group that each input token belongs to, from 0 in the order in which groups stand in this
    batch, -1 for padding and other rows; and the label of its answer: 1 preferred or desirable,
    2 rejected or undesirable, 0 none. Each answer of a group is a segment; ranked answers, which
    have no label, stand best first.

    shared: the names of the fields that are views of one row of memory which many batches have in
    common, and which nobody may write into; plain windows have such.

    What a rank's loss sum is to be divided by, for the mean over tokens or over samples, says
    `feed.denominators(step)`.
    """

    step: int
    input_ids: np.ndarray
    labels: np.ndarray
    loss_weights: np.ndarray
    segment_ids: np.ndarray
    position_ids: np.ndarray
    source_ids: np.ndarray
    document_ids: np.ndarray | None = None
    group_ids: np.ndarray | None = None
    answer_labels: np.ndarray | None = None
    records: list[Any] | None = field(default=None, repr=False)
    made_mask: np.ndarray | None = field(default=None, repr=False)  # attention_mask, if asked for
    shared: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def loss_mask(self) -> np.ndarray:
        """bool: where the loss counts."""
        return self.loss_weights > 0

    @property
    def attention_mask(self) -> np.ndarray:
        """bool: where there is a token."""
        return self.segment_ids > 0 if self.made_mask is None else self.made_mask

    def sample_weights(self) -> np.ndarray:
        """Return the weight of each label in a mean over samples, float64.

        Those of a segment add up to 1, or are all 0 where it has no target; the sum of
        losses so weighed, over all ranks, is divided by `feed.denominators(step).samples`.
        """
        width = self.segment_ids.shape[-1]
        segments = self.segment_ids.reshape(-1, width)
        weights = self.loss_weights.reshape(-1, width).astype(np.float64)
        # A number for each segment of the batch; a row has at most `width` of them, and padding.
        number = segments + np.arange(len(segments))[:, None] * (width + 1)
        totals = np.bincount(number.ravel(), weights=weights.ravel())[number]
        weighed = np.divide(weights, totals, out=np.zeros_like(weights), where=weights > 0)
        return weighed.reshape(self.segment_ids.shape)

    def cu_seqlens(self) -> np.ndarray:
        """Return the borders of all segments in the flattened batch, padding included, int32.

        Strictly increasing, from 0 to the number of slots; padding of a row is a segment
        of its own.
        """
        flat = self.segment_ids.reshape(-1, self.segment_ids.shape[-1])
        begins = np.ones(flat.shape, bool)
        begins[:, 1:] = flat[:, 1:] != flat[:, :-1]
        return np.append(np.flatnonzero(begins.reshape(-1)), flat.size).astype(np.int32)

    def padded(
        self, *, width: int | None = None, rows: int | None = None, pad_id: int = 0
    ) -> Batch:
        """Return the same segments one a row, in order, [n, width] or [A, n, width].

        Of rows of pairs these are the answers, preferred and rejected next to each other. `width`
        None: that of the longest; `rows` None: as many as there are segments, or, with
        accumulation, the most of a microbatch. What is left is padding, of `pad_id`.
        """
        slots, origin = slots_of_segments(self.segment_ids, width=width, rows=rows)
        is_empty = slots < 0

        def moved(values: np.ndarray, padding: int) -> np.ndarray:
            return np.where(is_empty, values.dtype.type(padding), values.reshape(-1)[slots])

        def moved_if_any(values: np.ndarray | None, padding: int) -> np.ndarray | None:
            return None if values is None else moved(values, padding)

        sources = self.source_ids.reshape(-1)[origin]
        return Batch(
            step=self.step,
            input_ids=moved(self.input_ids, pad_id),
            labels=moved(self.labels, -100),
            loss_weights=moved(self.loss_weights, 0),
            segment_ids=np.where(is_empty, np.int32(0), np.int32(1)),
            position_ids=moved(self.position_ids, 0),
            source_ids=np.where(origin < 0, np.int32(-1), sources),
            document_ids=moved_if_any(self.document_ids, -1),
            group_ids=moved_if_any(self.group_ids, -1),
            answer_labels=moved_if_any(self.answer_labels, 0),
        )

    def show(
        self,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        *,
        rows: int = 8,
        tokens: int = 128,
    ) -> ShownBatch:
        """Show the first rows token by token: which are trained, context, padding.

        With a tokenizer their text, else their ids; coloured in a notebook, in brackets where
        they are trained elsewhere.
        """
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)
        return ShownBatch(batch=self, tokenizer=loaded, rows=rows, tokens=tokens)

    @never_raising
    def __repr__(self) -> str:
        return told_batch(self)

    @drawn_or_none
    def _repr_html_(self) -> str | None:
        return self.show()._repr_html_()
