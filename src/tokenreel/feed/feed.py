"""Batches as a pure function of (stores, recipe, step).

`feed.batch(step)` is the global batch; `feed.batch(step, rank=r, world=w)` a rank's
contiguous part of it. Iterating only counts; the state is a step and a fingerprint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.gather import Gathered, empty_rows, gather
from tokenreel.feed.plain import CommonFields, plain_windows
from tokenreel.feed.prefetch import ahead
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.feed.state import check_state, make_state
from tokenreel.feed.tokens import tokens_of
from tokenreel.feed.trace import Explained, Hit, explain, where
from tokenreel.feed.watch import EpochWatch
from tokenreel.feed.weights import spans_of
from tokenreel.order.order import VERSIONS, Located, Order, SourceRows
from tokenreel.order.schedule import Change, normalised
from tokenreel.rows.episodes import Episodes
from tokenreel.rows.packed import Packed
from tokenreel.rows.plan import RowPlan
from tokenreel.rows.plan_cache import plan_cache
from tokenreel.rows.windows import Windows
from tokenreel.store.canonical import digest
from tokenreel.store.door import open_store
from tokenreel.store.store import Store

NOT_IN_BATCHES = ("accumulate", "steps")  # settings that change no row of any batch


class Feed:
    """The batches of a recipe.

    >>> import tempfile, tokenreel
    >>> path = tempfile.mkdtemp() + "/s"
    >>> with tokenreel.StoreWriter(path, vocab_size=100) as writer:
    ...     writer.add(range(100))
    >>> recipe = Recipe(seq_len=8, batch_size=4, seed=7, sources=[Source(name="a", path=path)])
    >>> feed = Feed(recipe)
    >>> batch = feed.batch(5, rank=1, world=2)
    >>> batch.input_ids.shape
    (2, 8)
    >>> bool((batch.input_ids[:, 1:] == batch.labels[:, :-1]).all())
    True
    """

    def __init__(self, recipe: Recipe | str | PathLike[str]) -> None:
        self.recipe = recipe if isinstance(recipe, Recipe) else Recipe.read(recipe)
        self.stores: tuple[Store, ...] = tuple(_open(item) for item in self.recipe.sources)
        self.plans: tuple[RowPlan, ...] = tuple(
            _plan(item, store, self.recipe)
            for item, store in zip(self.recipe.sources, self.stores, strict=True)
        )
        self.order = _order(self.recipe, self.plans)
        self.step = 0
        self._changes: list[dict[str, Any]] = []
        self._watch = EpochWatch(self.plans, self.order)
        self._plain = plain_windows(self.plans, self.order)
        self._common = CommonFields(self.recipe.seq_len)

    @property
    def identity(self) -> dict[str, Any]:
        """What the batches depend on, ready for JSON: stores by content, not by path."""
        recipe = asdict(self.recipe)
        for item in recipe["sources"]:
            del item["path"], item["mode"]
        return {
            "recipe": {key: value for key, value in recipe.items() if key not in NOT_IN_BATCHES},
            "stores": [store.fingerprint for store in self.stores],
            "plans": [plan.settings for plan in self.plans],
            "order": dict(VERSIONS),
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 over `identity`."""
        return digest(self.identity)

    def batch(self, step: int, *, rank: int = 0, world: int = 1, out: Batch | None = None) -> Batch:
        """Return a rank's rows of a step.

        `out`, an earlier batch of the same shape that is no longer needed, lends its memory:
        fresh memory costs more than what is put into it.
        """
        size = self._rank_rows(rank, world)
        if step < 0:
            raise ConfigError("bad step", expected=">= 0", actual=step)
        if out is not None and out.input_ids.shape != self._shape(size):
            raise ConfigError(
                "the batch that lends its memory has another shape",
                expected=self._shape(size),
                actual=out.input_ids.shape,
            )
        start = step * self.recipe.batch_size + rank * size
        self._watch.check(start + size)
        if self._plain is not None:
            shape = self._shape(size)
            inputs = np.empty(shape, np.int64) if out is None else out.input_ids
            labels = np.empty(shape, np.int64) if out is None else out.labels
            if self._plain.fill(start, size, inputs, labels):
                common = self._common.of_shape(shape)
                return Batch(step=step, input_ids=inputs, labels=labels, **common)
        located = self.order.locate(start, size)
        rows = _rows_of(out) or empty_rows(size, self.recipe.seq_len)
        for source in range(len(self.plans)):
            self._fill(rows, located, source)
        return self._shaped(step, rows)

    def _shape(self, num_rows: int) -> tuple[int, ...]:
        micro = self.recipe.accumulate
        lead = (micro, num_rows // micro) if micro > 1 else (num_rows,)
        return (*lead, self.recipe.seq_len)

    def _rank_rows(self, rank: int, world: int) -> int:
        parts = world * self.recipe.accumulate
        if world < 1 or not 0 <= rank < world:
            raise ConfigError("bad rank", expected=f"0 to {world - 1}", actual=rank)
        if self.recipe.batch_size % parts:
            raise ConfigError(
                "the batch does not divide over the ranks and microbatches",
                expected=f"a multiple of {parts}",
                actual=self.recipe.batch_size,
            )
        return self.recipe.batch_size // world

    def _fill(self, rows: Gathered, located: Located, source: int) -> None:
        plan = self.plans[source]
        mine = np.flatnonzero(located.source == source)
        if not len(mine):
            return
        pieces = plan.pieces(located.row[mine])
        spans = spans_of(plan.split, pieces)
        shards, buffer, pieces = tokens_of(plan.split, pieces)
        gather(
            shards,
            pieces,
            rows,
            out_row=mine,
            buffer=buffer,
            spans=spans,
            pad_id=self.recipe.pad_id,
        )

    def _shaped(self, step: int, rows: Gathered) -> Batch:
        shape = self._shape(len(rows.input_ids))
        arrays = {
            name: getattr(rows, name).reshape(shape)
            for name in ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids")
        }
        return Batch(step=step, **arrays)

    def weight_sum(self, step: int) -> float:
        """Return the sum of all loss weights of a global step: what a token mean divides by."""
        return float(self.batch(step).loss_weights.sum(dtype=np.float64))

    def __iter__(self) -> Iterator[Batch]:
        return self.stream()

    def stream(self, *, rank: int = 0, world: int = 1, prefetch: int = 0) -> Iterator[Batch]:
        """Yield batches from the current step on; `prefetch` of them are made ahead."""
        self._rank_rows(rank, world)  # refused here, not when the first batch is asked for
        if prefetch < 0:
            raise ConfigError("bad prefetch", expected=">= 0", actual=prefetch)
        return self._stream(rank=rank, world=world, prefetch=prefetch)

    def _stream(self, *, rank: int, world: int, prefetch: int) -> Iterator[Batch]:
        steps = range(self.step, self.recipe.steps or sys.maxsize)

        def make(step: int) -> tuple[Order, Batch]:
            return self.order, self.batch(step, rank=rank, world=world)

        with closing(ahead(make, iter(steps), depth=prefetch)) as batches:
            for order, made in batches:
                # A batch made ahead of a change of weights is of an order that is gone.
                batch = made if order is self.order else make(made.step)[1]
                self.step = batch.step + 1
                yield batch

    def __len__(self) -> int:
        """How many steps the recipe has, or one pass over all rows of all sources takes."""
        if self.recipe.steps is not None:
            return self.recipe.steps
        return -(-sum(plan.num_rows for plan in self.plans) // self.recipe.batch_size)

    def epoch_of(self, step: int) -> dict[str, float]:
        """Return how many epochs of each source come before a step."""
        counts = self.order.counts(step * self.recipe.batch_size)
        return {
            source.name: int(count) / plan.num_rows
            for source, plan, count in zip(self.recipe.sources, self.plans, counts, strict=True)
        }

    def explain(self, step: int) -> Explained:
        """Say which documents a step shows, row by row."""
        return explain(self, step)

    def where(
        self, source: str, document: int, *, start_step: int = 0, stop_step: int | None = None
    ) -> list[Hit]:
        """Say which steps show a document of a source."""
        return where(self, source, document, start_step=start_step, stop_step=stop_step)

    def _set_order(self, order: Order) -> None:
        self.order = order
        self._watch = EpochWatch(self.plans, order)
        self._plain = plain_windows(self.plans, order)

    def change_weights(self, weights: Mapping[str, float]) -> None:
        """Go on with other weights from the current step on; no row is repeated or lost.

        Phases of the recipe that have not come yet no longer do.
        """
        names = [source.name for source in self.recipe.sources]
        shares = normalised(weights, names, temperature=self.recipe.temperature)
        self._set_order(self.order.change(self.step * self.recipe.batch_size, shares))
        self._changes.append({"step": self.step, "weights": dict(weights)})

    def state_dict(self) -> dict[str, Any]:
        """Return where the feed is: a step, and what it must fit to be loaded."""
        return make_state(self.step, self._changes, self.identity)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says; a state of something else raises MismatchError."""
        check_state(state, self.identity)
        self._set_order(_order(self.recipe, self.plans))
        self._changes = []
        for change in state["changes"]:
            self.step = int(change["step"])
            self.change_weights(change["weights"])
        self.step = int(state["step"])


def _rows_of(out: Batch | None) -> Gathered | None:
    """Return the memory of a batch as rows; None if it has none of its own."""
    if out is None or not out.segment_ids.flags.writeable:
        return None
    width = out.input_ids.shape[-1]
    return Gathered(
        input_ids=out.input_ids.reshape(-1, width),
        labels=out.labels.reshape(-1, width),
        segment_ids=out.segment_ids.reshape(-1, width),
        position_ids=out.position_ids.reshape(-1, width),
        loss_weights=out.loss_weights.reshape(-1, width),
    )


def _open(source: Source) -> Store:
    return open_store(
        source.path,
        layout=source.layout,
        dtype=source.dtype,
        vocab_size=source.vocab_size,
        eos_id=source.eos_id,
        mode=source.mode,
    )


def _plan(source: Source, store: Store, recipe: Recipe) -> RowPlan:
    split = store[source.split]
    if source.rows == "episodes":
        options = {"truncation": source.truncation, "min_tokens": source.min_tokens}
        given = {name: value for name, value in options.items() if value is not None}
        return Episodes(split=split, seq_len=recipe.seq_len, **given)  # type: ignore[arg-type]
    if source.rows == "packed":
        return Packed(
            split=split,
            seq_len=recipe.seq_len,
            method=source.packing or "best_fit",
            truncation=source.truncation,
            cache=plan_cache(store),
        )
    return Windows(
        split=split, seq_len=recipe.seq_len, by_document=source.rows == "document_windows"
    )


def _order(recipe: Recipe, plans: tuple[RowPlan, ...]) -> Order:
    names = [source.name for source in recipe.sources]
    weights = {source.name: source.weight for source in recipe.sources}
    changes = [
        Change(
            start=phase.start_step * recipe.batch_size,
            shares=normalised(phase.weights, names, temperature=recipe.temperature),
            ramp=phase.ramp_steps * recipe.batch_size,
        )
        for phase in recipe.phases
    ]
    rows = [
        SourceRows(
            name=source.name,
            num_rows=plan.num_rows,
            shuffle=source.shuffle,
            max_epochs=source.max_epochs,
        )
        for source, plan in zip(recipe.sources, plans, strict=True)
    ]
    shares = normalised(weights, names, temperature=recipe.temperature)
    return Order(rows, shares=shares, changes=changes, seed=recipe.seed)
