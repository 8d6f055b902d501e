"""Which group of answers each input token of a batch belongs to, and the label of its answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenreel.order.order import Located
from tokenreel.rows.pieces import ragged_index
from tokenreel.rows.row_plan import GroupPlan, RowPlan

NO_GROUP = -1


def has_groups(plans: Sequence[RowPlan]) -> bool:
    """Tell whether some rows of these plans are made of groups."""
    return any(isinstance(plan, GroupPlan) for plan in plans)


def group_fields_of(
    plans: Sequence[RowPlan], located: Located, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the group, and the label, of each input token, int32 of this shape.

    Groups are numbered through the batch in the order in which they stand there. -1 and 0 where
    there is no token, or no group. `located` has a row for each of the batch's.
    """
    seq_len = shape[-1]
    # One column more than the batch has inputs: a row of T + 1 tokens ends with a label.
    size = len(located.source) * (seq_len + 1)
    groups, labels = np.full(size, NO_GROUP, np.int32), np.zeros(size, np.int32)
    # Of each answer, for all sources: its row in the batch, its first slot, length, label, and
    # whether it begins a group.
    found: list[tuple[np.ndarray, ...]] = []
    for number, plan in enumerate(plans):
        mine = np.flatnonzero(located.source == number)
        if not isinstance(plan, GroupPlan) or not len(mine):
            continue
        answers = plan.answers(located.row[mine])
        counts = np.diff(answers.row_offsets)
        row = np.repeat(mine, counts)
        ends = np.cumsum(answers.length)
        before = (ends - answers.length)[answers.row_offsets[:-1]]  # tokens of earlier rows
        slot = ends - answers.length - np.repeat(before, counts)
        is_new = np.ones(len(row), bool)
        is_new[1:] = (np.diff(row) != 0) | (np.diff(answers.document) != 0)
        found.append((row, slot, answers.length, answers.label, is_new))
    if found:
        row, slot, length, label, is_new = (
            np.concatenate(column) for column in zip(*found, strict=True)
        )
        order = np.argsort(row, kind="stable")
        group = np.empty(len(row), np.int64)
        group[order] = np.cumsum(is_new[order]) - 1
        slots = ragged_index(row * (seq_len + 1) + slot, length)
        groups[slots] = np.repeat(group, length)
        labels[slots] = np.repeat(label, length)
    return _inputs(groups, shape), _inputs(labels, shape)


def _inputs(slots: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the slots of inputs, without the last of each row."""
    return np.ascontiguousarray(slots.reshape(-1, shape[-1] + 1)[:, :-1]).reshape(shape)
