"""Batches as a pure function of (stores, recipe, step).

`feed.batch(step)` is the global batch; `feed.batch(step, rank=r, world_size=w)` a rank's
contiguous part of it. Iterating only counts; the state is a step and a fingerprint.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.canonical import digest
from tokenreel.config.settings import identity_of
from tokenreel.errors import ConfigError, EndlessError
from tokenreel.feed.batch import Batch
from tokenreel.feed.batcher import Batcher
from tokenreel.feed.buffers import Allocate, Ring, checked
from tokenreel.feed.denominators import Denominators
from tokenreel.feed.prefetch import checked_threads
from tokenreel.feed.recipe import Given, recipe_of
from tokenreel.feed.run_end import Ending, beyond, find_ending
from tokenreel.feed.share_curve import rows_before
from tokenreel.feed.shown_batch import ShownBatch, show_batch
from tokenreel.feed.shown_feed import feed_html, told_feed
from tokenreel.feed.sources import check_tokenizers, deal_rows, open_source, order_rows, plan_rows
from tokenreel.feed.state import Change, check_room, check_state, make_state, named_changes
from tokenreel.feed.streaming import stream_batches
from tokenreel.feed.trace import Explained, Hit, check_number, explain, where
from tokenreel.order.order import VERSIONS, Located, Order
from tokenreel.order.schedule import normalised, shares_of
from tokenreel.rows.row_plan import RowPlan
from tokenreel.store.store import Store

if TYPE_CHECKING:
    from tokenreel.text.tokenizers import Tokenizer

TOKENIZER_REMEDY = "give the tokenizer that it was built with, or insist with force_tokenizer"


class Feed:
    """The batches of a recipe.

    `check_ids` refuses tokens outside their store's vocabulary, or, if it is a number, outside
    that of a model of so many ids: each shard is read once, when it is first touched.

    >>> import tempfile, tokenreel
    >>> from tokenreel import Recipe, Source
    >>> path = tempfile.mkdtemp() + "/s"
    >>> with tokenreel.StoreWriter(path, vocab_size=100) as writer:
    ...     writer.add(range(100))
    >>> source = Source(name="a", path=path)
    >>> recipe = Recipe(seq_len=8, global_batch_size=4, seed=7, sources=[source])
    >>> feed = Feed(recipe)
    >>> batch = feed.batch(5, rank=1, world_size=2)
    >>> batch.input_ids.shape
    (2, 8)
    >>> bool((batch.input_ids[:, 1:] == batch.labels[:, :-1]).all())
    True
    """

    def __init__(self, recipe: Given, *, threads: int = 1, check_ids: bool | int = False) -> None:
        self.recipe = recipe_of(recipe)
        self._threads = checked_threads(threads)
        self._check_ids = check_ids
        self.stores: tuple[Store, ...] = tuple(
            open_source(item, check_ids=check_ids) for item in self.recipe.sources
        )
        if not self.recipe.mixed_tokenizers:
            check_tokenizers(self.recipe.sources, self.stores)
        self.plans: tuple[RowPlan, ...] = tuple(
            plan_rows(item, store, self.recipe)
            for item, store in zip(self.recipe.sources, self.stores, strict=True)
        )
        self.order = order_rows(self.recipe, self.plans)
        self.deal = deal_rows(self.recipe, self.plans)
        self._batcher = Batcher(self.recipe, self.plans, self.order, deal=self.deal)
        self._ending: Ending | None = None
        self._ending_of: Order | None = None  # the order that the ending was found for
        self._step = 0
        self._is_placed = True  # whether the step was chosen, and not come to by streaming
        self._num_loads = 0
        self._changes: list[Change] = []

    @property
    def step(self) -> int:
        """The step that comes next; may be set."""
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        self._step, self._is_placed = step, True

    @property
    def identity(self) -> dict[str, Any]:
        """What the batches depend on, ready for JSON: stores by content, not by path."""
        return {
            "recipe": identity_of(self.recipe),
            "stores": [store.fingerprint for store in self.stores],
            "plans": [plan.settings for plan in self.plans],
            "order": dict(VERSIONS),
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 over `identity`."""
        return digest(self.identity)

    def shape(self, *, rank: int = 0, world_size: int = 1) -> tuple[int, ...]:
        """Return the shape of a rank's batches, [B, T] or [A, B, T]."""
        return self._batcher.part(rank, world_size).shape

    def batch(
        self,
        step: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        out: Batch | None = None,
        extra: Sequence[str] = (),
    ) -> Batch:
        """Return a rank's rows of a step: any step, also one behind the recipe's `steps`.

        Only where rows end, with passes or max_epochs, there is no step behind the last.
        `out`, an earlier batch of the same shape that is no longer needed, lends its memory.
        Without, the memory of a batch that nobody holds any more is used again. `extra` fields
        are made on request: document_ids, records (what the store keeps of each row's document),
        and attention_mask (else found when it is looked at).
        """
        batcher = self._batcher
        part = batcher.part(rank, world_size)
        self._check_step(step)
        if out is None:
            memory = batcher.memory(part.num_rows, extra=extra)
        else:
            memory = batcher.memory_of(out, part, extra=extra)
        return batcher.make(step, part, memory, threads=self._threads, extra=extra)

    def rows(
        self, step: int, seats: Sequence[int] | np.ndarray, *, extra: Sequence[str] = ()
    ) -> Batch:
        """Return rows of a step, in the order given, [n, T]; seat r is row r of batch(step)."""
        self._check_step(step)
        batcher, num_rows = self._batcher, self.deal.num_rows_in(step)
        seats = np.asarray(seats)
        if seats.ndim != 1 or seats.dtype.kind not in "iu":
            raise ConfigError("bad seats", expected="whole numbers, [n]", actual=seats.dtype)
        if len(seats) and not (int(seats.min()) >= 0 and int(seats.max()) < num_rows):
            raise ConfigError("no such row in the step", expected=f"0 to {num_rows - 1:,}")
        shape = (len(seats), self.recipe.seq_len)
        memory = batcher.memory(len(seats), extra=extra)
        wanted = np.ascontiguousarray(seats, np.int64)
        return batcher.make_rows(step, wanted, shape, memory, extra=extra)

    def records(self, step: int, *, rank: int = 0, world_size: int = 1) -> list[Any]:
        """Return what the stores keep of the document of each row of batch(step, …): its record.

        A list [B], or [A][B] with accumulation, such as the answers to a step's prompts; no token
        is read. None stands for a row that is padding, shows several documents (see `explain`),
        or whose store keeps no records.
        """
        self._check_step(step)
        return self._batcher.records(step, self._batcher.part(rank, world_size))

    def locate(self, step: int) -> Located:
        """Return source, epoch and row of each row of a global step."""
        self._check_step(step)
        return self._batcher.locate(step)

    def denominators(self, step: int) -> Denominators:
        """Return what a token mean and a sample mean of a global step are divided by.

        The same on every rank and for any number of ranks and microbatches. Costs some ten
        microseconds and a microsecond for each row of the global step; no batch is made.
        """
        self._check_step(step)
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
        world_size: int = 1,
        devices: int = 1,
        prefetch: int = 0,
        keep: int | None = None,
        allocate: Allocate | None = None,
        extra: Sequence[str] = (),
    ) -> Iterator[Batch]:
        """Yield batches from the current step on; `prefetch` of them are made ahead.

        A run of whole passes begins anew with each stream, unless a state was loaded or the
        step was set before, and a part of the pass is left.

        A batch is valid as long as it is held; then its memory is used again. With `keep` it is
        valid for so many batches: with keep=1 until the next is asked for, with keep=2 until the
        next but one. `allocate(shape, dtype)` gives the memory, pinned for instance; with `keep`
        that is asked `prefetch + keep` times and no more. `devices` share each microbatch: its
        rows are filled up to a multiple. `extra` is that of `batch`. A change of weights holds
        from the next batch on; a loaded state ends the stream.
        """
        part = self._batcher.part(rank, world_size, devices=devices)  # refused before the first
        for name, value, least in (("prefetch", prefetch, 0), ("keep", keep, 1)):
            if value is not None and value < least:
                raise ConfigError(f"bad {name}", expected=f">= {least}", actual=value)
        wanted = None if allocate is None else checked(allocate)
        fresh = partial(self._batcher.memory, part.num_rows, allocate=wanted, extra=extra)
        ring = None if keep is None else Ring(prefetch + keep, fresh)
        memories = (fresh() if ring is None else ring[number] for number in count())
        self._begin()
        # Taken now: another stream may go on before this one's first batch is asked for.
        start, num_loads = self.step, self._num_loads
        return stream_batches(self, part, prefetch, memories, start, num_loads, extra)

    def _begin(self) -> None:
        """Go to the step that a stream begins with, or warn that no step is left."""
        is_placed, self._is_placed = self._is_placed, False
        is_over = self.num_steps is not None and self.step >= self.num_steps
        if self.recipe.passes is not None and (is_over or not is_placed):
            self._step = 0
        elif is_over and not is_placed:
            warnings.warn(
                f"the run has ended: all {self.num_steps:,} steps were streamed, no batch is left; "
                "load a state or set the step to begin again; an evaluation is a recipe with "
                "passes=1, which begins anew each time",
                stacklevel=3,
            )

    def _is_within(self, step: int) -> bool:
        return self.num_steps is None or step < self.num_steps

    @property
    def ending(self) -> Ending | None:
        """Where the run ends of itself, and what it leaves unshown; None: nowhere."""
        if self._ending_of is not self.order:  # found anew for each order, when first asked for
            self._ending, self._ending_of = find_ending(self.order, self.deal), self.order
        return self._ending

    @property
    def num_steps(self) -> int | None:
        """How many steps the run has; None: it has no end.

        Those of the recipe, or as many as there are rows for: `passes` over all of them, or up
        to where a source has run out of its `max_epochs`.
        """
        ending = self.ending
        ends = (self.recipe.steps, None if ending is None else ending.steps)
        return min((end for end in ends if end is not None), default=None)

    def __len__(self) -> int:
        """How many steps the run has; EndlessError if it has no end."""
        if self.num_steps is None:
            raise EndlessError(
                "a run without end has no length",
                remedy="give the recipe steps; or passes, to show every row so many times; or its "
                "sources max_epochs",
            )
        return self.num_steps

    def _check_step(self, step: int) -> None:
        check_number(step)
        ending = self.ending
        if ending is not None and step >= ending.steps:
            raise beyond(ending, step)

    def epoch_of(self, step: int) -> dict[str, float]:
        """Return how many epochs of each source come before a step."""
        if step < 0:
            raise ConfigError("bad step", expected=">= 0", actual=step)
        parts = zip(self.recipe.sources, self.plans, rows_before(self, step), strict=True)
        return {source.name: int(count) / plan.num_rows for source, plan, count in parts}

    def explain(
        self,
        step: int,
        *,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        force_tokenizer: bool = False,
    ) -> Explained:
        """Say which documents a step shows, row by row; with a tokenizer, also their text.

        Every step that `batch` makes is explained, also one behind the recipe's `steps`; the
        command line refuses those, since the run does not show them.
        A tokenizer other than that of the stores is refused, unless `force_tokenizer` insists; an
        id that it lacks is then shown as ⟨2000⟩.
        """
        return explain(self, step, tokenizer=tokenizer, force_tokenizer=force_tokenizer)

    def show(
        self,
        step: int,
        *,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        rank: int = 0,
        world_size: int = 1,
        rows: int = 8,
        tokens: int = 128,
    ) -> ShownBatch:
        """Show the first rows of a step token by token: see Batch.show.

        A tokenizer other than that of the stores is refused.
        """
        batch = self.batch(step, rank=rank, world_size=world_size)
        return show_batch(self, batch, tokenizer=tokenizer, rows=rows, tokens=tokens)

    def widget(
        self,
        step: int | None = None,
        *,
        tokenizer: str | PathLike[str] | Tokenizer | None = None,
        force_tokenizer: bool = False,
        rows: int = 8,
    ) -> Any:
        """Return a widget for notebooks: a slider over the steps, and rows of one as chips.

        It begins at `step`, or where the feed stands, and needs the extra `widget`. Without a
        tokenizer that of the stores is taken, where it is found.
        """
        from tokenreel.view.widget import batch_widget  # which is made of feeds

        return batch_widget(self, step, tokenizer=tokenizer, force=force_tokenizer, rows=rows)

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raise MismatchError unless all stores are of the tokenizer with this fingerprint.

        A store that does not record its tokenizer is not asked.
        """
        for store in self.stores:
            store.check_tokenizer(fingerprint, remedy=TOKENIZER_REMEDY)

    def where(
        self, source: str, document: int, *, start_step: int = 0, stop_step: int | None = None
    ) -> list[Hit]:
        """Say which steps show a document of a source."""
        return where(self, source, document, start_step=start_step, stop_step=stop_step)

    def change_weights(self, weights: Mapping[str, float]) -> None:
        """Go on with other weights from the current step on; no row is repeated or lost.

        What a source was owed of its share by then is carried over. Phases of the recipe that
        have not come yet no longer do. Weights that hold already change nothing.
        """
        if self.recipe.passes is not None:
            raise ConfigError("whole passes have no weights", remedy="leave passes out")
        names = [source.name for source in self.recipe.sources]
        shares = normalised(weights, names, temperature=self.recipe.temperature)
        position = self.step * self.recipe.global_batch_size
        if np.array_equal(self.order.shares_from(position), shares):  # type: ignore[arg-type]
            return
        check_room(len(self._changes) + 1, num_sources=len(names))
        self._set_order(self.order.change(position, shares))
        self._changes.append((self.step, tuple(float(weights.get(name, 0)) for name in names)))

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The weights that were changed on the way: from which step on, and which."""
        return named_changes(self._changes, [source.name for source in self.recipe.sources])

    def _set_order(self, order: Order) -> None:
        self.order = order
        self._batcher = self._batcher.in_order(order)

    def state_dict(self) -> dict[str, Any]:
        """Return the next step, and the identity that a feed must have to load it."""
        return make_state(self.step, self._changes, self.identity)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at the step of a state; MismatchError if it is of other stores or recipes."""
        changes = check_state(state, self.identity)
        size, temperature = self.recipe.global_batch_size, self.recipe.temperature
        shares = [
            (step * size, shares_of(weights, temperature=temperature)) for step, weights in changes
        ]
        self._set_order(order_rows(self.recipe, self.plans).changed(shares))
        self._changes = changes
        self.step = state["step"]
        self._num_loads += 1

    __repr__ = told_feed
    _repr_html_ = feed_html

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the recipe and the state, some kilobytes; no token is sent."""
        from tokenreel.feed.reopen import reopened

        options = {"threads": self._threads, "check_ids": self._check_ids}
        sent = (self.recipe, options, self.state_dict(), self._is_placed)
        return reopened, (type(self), *sent)
