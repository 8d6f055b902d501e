"""Batches as a pure function of (stores, recipe, step).

`feed.batch(step)` is the global batch; `feed.batch(step, rank=r, world=w)` a rank's
contiguous part of it. Iterating only counts; the state is a step and a fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import count
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.batcher import Batcher, Part
from tokenreel.feed.buffers import Allocate, BatchMemory, Ring
from tokenreel.feed.denominators import Denominators
from tokenreel.feed.prefetch import ahead
from tokenreel.feed.read_ahead import ReadAhead
from tokenreel.feed.recipe import Recipe
from tokenreel.feed.sources import open_source, order_rows, plan_rows
from tokenreel.feed.state import check_state, make_state
from tokenreel.feed.trace import Explained, Hit, explain, where
from tokenreel.order.order import VERSIONS, Order
from tokenreel.order.schedule import normalised
from tokenreel.rows.plan import RowPlan
from tokenreel.store.canonical import digest
from tokenreel.store.store import Store

if TYPE_CHECKING:
    from tokenreel.text.tokenizers import Tokenizer

MOST_THREADS = 256
NOT_IN_BATCHES = ("accumulate", "steps")  # settings that change no row of any batch


class Feed:
    """The batches of a recipe.

    >>> import tempfile, tokenreel
    >>> from tokenreel import Recipe, Source
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

    def __init__(self, recipe: Recipe | str | PathLike[str], *, threads: int = 1) -> None:
        self.recipe = recipe if isinstance(recipe, Recipe) else Recipe.read(recipe)
        self._threads = _checked_threads(threads)
        self.stores: tuple[Store, ...] = tuple(open_source(item) for item in self.recipe.sources)
        self.plans: tuple[RowPlan, ...] = tuple(
            plan_rows(item, store, self.recipe)
            for item, store in zip(self.recipe.sources, self.stores, strict=True)
        )
        self._set_order(order_rows(self.recipe, self.plans))
        self.step = 0
        self._changes: list[dict[str, Any]] = []
        self._wound = 0  # how often a state was loaded

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
        batcher = self._batcher
        part = batcher.part(rank, world)
        _check_step(step)
        memory = batcher.memory(part) if out is None else BatchMemory.of(out, shape=part.shape)
        return batcher.make(step, part, memory, threads=self._threads)

    def denominators(self, step: int) -> Denominators:
        """Return what a token mean and a sample mean of a global step are divided by.

        The same on every rank and for any number of ranks and microbatches. Costs some ten
        microseconds and a microsecond for each row of the global step; no batch is made.
        """
        _check_step(step)
        return self._batcher.denominators(step)

    def weight_sum(self, step: int) -> float:
        """Return the sum of all loss weights of a global step: what a token mean divides by."""
        return self.denominators(step).tokens

    def __iter__(self) -> Iterator[Batch]:
        return self.stream()

    def stream(
        self,
        *,
        rank: int = 0,
        world: int = 1,
        prefetch: int = 0,
        keep: int | None = None,
        allocate: Allocate = np.empty,
    ) -> Iterator[Batch]:
        """Yield batches from the current step on; `prefetch` of them are made ahead.

        Each batch has memory of its own, unless `keep` says for how many batches it is kept:
        with keep=1 a batch is valid until the next is asked for, with keep=2 until the next
        but one, then its memory is used again. `allocate(shape, dtype)` gives the memory,
        pinned for instance; with `keep` that is asked `prefetch + keep` times and no more.
        A change of weights holds from the next batch on; a loaded state ends the stream.
        """
        part = self._batcher.part(rank, world)  # refused here, not at the first batch
        for name, value, least in (("prefetch", prefetch, 0), ("keep", keep, 1)):
            if value is not None and value < least:
                raise ConfigError(f"bad {name}", expected=f">= {least}", actual=value)
        fresh = partial(self._batcher.memory, part, allocate)
        ring = None if keep is None else Ring(prefetch + keep, fresh)
        memories = (fresh() if ring is None else ring[number] for number in count())
        return self._stream(part, prefetch, memories)

    def _stream(
        self, part: Part, prefetch: int, memories: Iterator[BatchMemory]
    ) -> Iterator[Batch]:
        threads = self._threads if prefetch == 0 else 1  # else each makes a batch
        read_ahead = ReadAhead(lambda step: self._batcher.announce(step, part))

        def make(job: tuple[int, BatchMemory]) -> tuple[Batcher, BatchMemory, Batch]:
            (step, memory), batcher = job, self._batcher
            read_ahead.before(step)
            batch = batcher.make(step, part, memory, threads=threads)
            read_ahead.after(step)
            return batcher, memory, batch

        end = self.recipe.steps
        steps = count(self.step) if end is None else range(self.step, end)
        wound, jobs = self._wound, zip(steps, memories, strict=False)
        with closing(ahead(make, jobs, depth=prefetch, threads=self._threads)) as made:
            for batcher, memory, batch in made:
                if wound != self._wound:
                    raise ConfigError(
                        "a state was loaded while the feed was streamed",
                        remedy="begin another stream: it starts at the step of the state",
                    )
                # A batch made ahead of a change of weights is of an order that is gone.
                if batcher is not self._batcher:
                    batch = make((batch.step, memory))[2]
                self.step = batch.step + 1
                yield batch

    def __len__(self) -> int:
        """How many steps the recipe has, or one pass over all rows of all sources takes."""
        if self.recipe.steps is not None:
            return self.recipe.steps
        return -(-sum(plan.num_rows for plan in self.plans) // self.recipe.batch_size)

    def epoch_of(self, step: int) -> dict[str, float]:
        """Return how many epochs of each source come before a step."""
        _check_step(step)
        counts = self.order.counts(step * self.recipe.batch_size)
        return {
            source.name: int(count) / plan.num_rows
            for source, plan, count in zip(self.recipe.sources, self.plans, counts, strict=True)
        }

    def explain(
        self, step: int, *, tokenizer: str | PathLike[str] | Tokenizer | None = None
    ) -> Explained:
        """Say which documents a step shows, row by row; with a tokenizer, also their text."""
        _check_step(step)
        if tokenizer is None:
            return explain(self, step)
        from tokenreel.text.tokenizers import load_tokenizer  # only a text needs it

        return explain(self, step, load_tokenizer(_as_spec(tokenizer)).decode)

    def where(
        self, source: str, document: int, *, start_step: int = 0, stop_step: int | None = None
    ) -> list[Hit]:
        """Say which steps show a document of a source."""
        return where(self, source, document, start_step=start_step, stop_step=stop_step)

    def _set_order(self, order: Order) -> None:
        self.order = order
        self._batcher = Batcher(self.recipe, self.plans, order)

    def change_weights(self, weights: Mapping[str, float]) -> None:
        """Go on with other weights from the current step on; no row is repeated or lost.

        Phases of the recipe that have not come yet no longer do.
        """
        self._set_order(self._changed(self.order, self.step, weights))
        self._changes.append({"step": self.step, "weights": dict(weights)})

    def _changed(self, order: Order, step: int, weights: Mapping[str, float]) -> Order:
        names = [source.name for source in self.recipe.sources]
        shares = normalised(weights, names, temperature=self.recipe.temperature)
        return order.change(step * self.recipe.batch_size, shares)

    def state_dict(self) -> dict[str, Any]:
        """Return where the feed is: a step, and what it must fit to be loaded."""
        return make_state(self.step, self._changes, self.identity)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says; a state of something else raises MismatchError."""
        check_state(state, self.identity)
        order = order_rows(self.recipe, self.plans)
        for change in state["changes"]:
            order = self._changed(order, change["step"], change["weights"])
        self._set_order(order)
        self._changes = [dict(change) for change in state["changes"]]
        self.step = state["step"]
        self._wound += 1


def _checked_threads(threads: int) -> int:
    if not 1 <= threads <= MOST_THREADS:
        raise ConfigError(
            "bad number of threads", expected=f"1 to {MOST_THREADS:,}", actual=threads
        )
    return threads


def _check_step(step: int) -> None:
    if step < 0:
        raise ConfigError("bad step", expected=">= 0", actual=step)


def _as_spec(tokenizer: str | PathLike[str] | Tokenizer) -> str | Path | Tokenizer:
    return Path(tokenizer) if isinstance(tokenizer, PathLike) else tokenizer
