"""Batches of a recipe in one order: shapes, memory, rows, fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.feed.assemble import Assembler
from tokenreel.feed.batch import Batch
from tokenreel.feed.buffers import Allocate, BatchMemory
from tokenreel.feed.denominators import Denominators, add_up
from tokenreel.feed.plain import CommonFields
from tokenreel.feed.recipe import Recipe
from tokenreel.feed.watch import EpochWatch
from tokenreel.order.order import Order
from tokenreel.rows.plan import RowPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A rank's rows of every step, and the shape of their batch, [B, T] or [A, B, T]."""

    first_row: int
    num_rows: int
    shape: tuple[int, ...]


class Batcher:
    """Makes any batch of the run that these plans in this order are; threads may share one."""

    def __init__(self, recipe: Recipe, plans: Sequence[RowPlan], order: Order) -> None:
        self.recipe = recipe
        self._watch = EpochWatch(plans, order)
        self._assembler = Assembler(plans, order, pad_id=recipe.pad_id)
        self._common = CommonFields(recipe.seq_len)
        self._parts: dict[tuple[int, int], Part] = {}

    def part(self, rank: int, world: int) -> Part:
        """Return which rows of each step are a rank's, or raise ConfigError."""
        part = self._parts.get((rank, world))
        if part is None:
            part = self._parts[rank, world] = self._part(rank, world)
        return part

    def _part(self, rank: int, world: int) -> Part:
        parts = world * self.recipe.accumulate
        if world < 1 or not 0 <= rank < world:
            raise ConfigError("bad rank", expected=f"0 to {world - 1}", actual=rank)
        if self.recipe.batch_size % parts:
            raise ConfigError(
                "the batch does not divide over the ranks and microbatches",
                expected=f"a multiple of {parts}",
                actual=self.recipe.batch_size,
            )
        num_rows, micro = self.recipe.batch_size // world, self.recipe.accumulate
        lead = (micro, num_rows // micro) if micro > 1 else (num_rows,)
        shape = (*lead, self.recipe.seq_len)
        return Part(first_row=rank * num_rows, num_rows=num_rows, shape=shape)

    def memory(self, part: Part, allocate: Allocate = np.empty) -> BatchMemory:
        """Return memory for a batch of a rank's part."""
        return BatchMemory(part.num_rows, self.recipe.seq_len, allocate=allocate)

    def make(self, step: int, part: Part, memory: BatchMemory, *, threads: int = 1) -> Batch:
        """Return a rank's part of a step's batch."""
        start, shape = step * self.recipe.batch_size + part.first_row, part.shape
        self._watch.check(start + part.num_rows)
        if self._assembler.fill_plain(start, memory, threads=threads):
            return Batch(
                step=step,
                input_ids=_shaped(memory.input_ids, shape),
                labels=_shaped(memory.labels, shape),
                **self._common.of_shape(shape),
            )
        rows = memory.rows()
        self._assembler.fill(start, rows, threads=threads)
        return Batch(
            step=step,
            input_ids=_shaped(rows.input_ids, shape),
            labels=_shaped(rows.labels, shape),
            loss_weights=_shaped(rows.loss_weights, shape),
            segment_ids=_shaped(rows.segment_ids, shape),
            position_ids=_shaped(rows.position_ids, shape),
        )

    def denominators(self, step: int) -> Denominators:
        """Return what losses of a global step are divided by."""
        size = self.recipe.batch_size
        return add_up(*self._assembler.weigh(step * size, size))

    def announce(self, step: int, part: Part) -> None:
        """Have the system read what a part of a step is made of, without waiting for it."""
        start = step * self.recipe.batch_size + part.first_row
        self._assembler.announce(start, part.num_rows)


def _shaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array if array.shape == shape else array.reshape(shape)
