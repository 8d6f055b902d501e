"""Batches of a recipe in one order: shapes, memory, rows, fields."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from tokenreel.feed.batch import Batch
from tokenreel.feed.buffers import Allocate, BatchMemory
from tokenreel.feed.denominators import Denominators, add_up
from tokenreel.feed.document_ids import document_ids_of
from tokenreel.feed.fields import EXTRA, known_fields
from tokenreel.feed.group_fields import group_fields_of, has_groups
from tokenreel.feed.memory import Memory
from tokenreel.feed.parts import Part, part_of
from tokenreel.feed.plain import CommonFields
from tokenreel.feed.recipe import Recipe
from tokenreel.feed.row_maker import Assembler
from tokenreel.feed.row_records import records_of
from tokenreel.feed.watch import EpochWatch
from tokenreel.order.deal import Deal
from tokenreel.order.order import Located, Order
from tokenreel.rows.row_plan import RowPlan


class Batcher:
    """Makes the batches of a run: rows of these plans, in this order. Threads may share one."""

    def __init__(
        self, recipe: Recipe, plans: Sequence[RowPlan], order: Order, *, deal: Deal
    ) -> None:
        self.recipe, self.deal = recipe, deal
        self._plans = plans
        self._watch = EpochWatch(plans, order)
        self._assembler = Assembler(
            plans, order, deal=deal, seq_len=recipe.seq_len, pad_id=recipe.pad_id
        )
        self._has_groups = has_groups(plans)
        self._common = CommonFields(recipe.seq_len)
        self._parts: dict[tuple[int, int, int], Part] = {}
        self._pool = Memory()

    def in_order(self, order: Order) -> Batcher:
        """Return a batcher of the same rows in an order with other weights."""
        changed = copy(self)
        changed._watch = self._watch.in_order(order)
        changed._assembler = self._assembler.in_order(order)
        return changed

    def part(self, rank: int, world_size: int, *, devices: int = 1) -> Part:
        """Return which rows of each step are a rank's, or raise ConfigError."""
        key = (rank, world_size, devices)
        part = self._parts.get(key)
        if part is None:
            recipe = self.recipe
            part = self._parts[key] = part_of(
                recipe.global_batch_size,
                recipe.seq_len,
                rank=rank,
                world_size=world_size,
                grad_accum=recipe.grad_accum,
                devices=devices,
            )
        return part

    def memory(
        self, num_rows: int, *, allocate: Allocate | None = None, extra: Sequence[str] = ()
    ) -> BatchMemory:
        """Return memory for a batch of rows; that of a batch nobody holds, if there is one."""
        allocate, masked = allocate or self._pool.array, _has_mask(extra)
        return BatchMemory(num_rows, self.recipe.seq_len, allocate=allocate, masked=masked)

    def memory_of(self, batch: Batch, part: Part, *, extra: Sequence[str] = ()) -> BatchMemory:
        """Return the memory of a batch that is no longer needed, for another of a rank's part."""
        return BatchMemory.of(batch, shape=part.shape, masked=_has_mask(extra))

    def make(
        self,
        step: int,
        part: Part,
        memory: BatchMemory,
        *,
        threads: int = 1,
        extra: Sequence[str] = (),
    ) -> Batch:
        """Return a rank's part of a step's batch."""
        num_rows = self.deal.num_rows_in(step)
        self._watch.check(step * self.recipe.global_batch_size + num_rows)
        seats = part.seats(num_rows)
        return self.make_rows(step, seats, part.shape, memory, threads=threads, extra=extra)

    def make_rows(
        self,
        step: int,
        seats: np.ndarray,
        shape: tuple[int, ...],
        memory: BatchMemory,
        *,
        threads: int = 1,
        extra: Sequence[str] = (),
    ) -> Batch:
        """Return a batch of the rows in these seats of a step."""
        if self._assembler.fill_plain(step, seats, memory, threads=threads):
            fields = self._common.of_shape(shape, masked="attention_mask" in extra)
        else:
            self._assembler.fill(step, seats, memory, threads=threads)
            rows = memory.rows()
            fields = {
                "loss_weights": _shaped(rows.loss_weights, shape),
                "segment_ids": _shaped(rows.segment_ids, shape),
                "position_ids": _shaped(rows.position_ids, shape),
            }
            if memory.mask is not None:
                fields["made_mask"] = _shaped(memory.mask, shape)
        documents = None
        if "document_ids" in extra:
            documents = document_ids_of(self._plans, self._assembler.locate(step, seats), shape)
        groups = labels = None
        if self._has_groups or "group_ids" in extra or "answer_labels" in extra:
            located = self._assembler.locate(step, seats)
            groups, labels = group_fields_of(self._plans, located, shape)
        records = None
        if "records" in extra:
            records = records_of(self._plans, self._assembler.locate(step, seats), shape)
        return Batch(
            step=step,
            input_ids=_shaped(memory.input_ids, shape),
            labels=_shaped(memory.labels, shape),
            source_ids=_shaped(memory.source_ids, shape[:-1]),
            document_ids=documents,
            group_ids=groups,
            answer_labels=labels,
            records=records,
            **fields,
        )

    def records(self, step: int, part: Part) -> list[Any]:
        """Return what the stores keep of the documents of a rank's rows of a step."""
        seats = part.seats(self.deal.num_rows_in(step))
        return records_of(self._plans, self._assembler.locate(step, seats), part.shape)

    def locate(self, step: int) -> Located:
        """Return source, epoch and row of each row of a global step."""
        return self._assembler.locate(step, np.arange(self.deal.num_rows_in(step)))

    def denominators(self, step: int) -> Denominators:
        """Return what losses of a global step are divided by."""
        return add_up(*self._assembler.weigh(step, np.arange(self.deal.num_rows_in(step))))

    def announce(self, step: int, part: Part) -> None:
        """Have the system read what a part of a step is made of, without waiting for it."""
        self._assembler.announce(step, part.seats(self.deal.num_rows_in(step)))


def _has_mask(extra: Sequence[str]) -> bool:
    return bool(extra) and "attention_mask" in known_fields(extra, known=EXTRA)


def _shaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array if array.shape == shape else array.reshape(shape)
