"""Lengths into rows of one capacity, so that few slots stay empty.

    best_fit     longest first, each into the row with the least room that still holds it;
                 of rows with equal room, the one that was filled last
    first_fit    longest first, each into the first row (by number) that holds it
    sequential   in the order given; a new row where the next length does not fit
    single       each into a row of its own

Equal lengths are taken in the order given. What is in a row stands in the order given, and
rows are numbered by the first that is in them: the result is one and the same on every
machine, and rows that are not shuffled show documents about in their order. 10⁶ lengths
into rows of 2,049 take about 0.05 s (best_fit) in the kernel, which releases the GIL, and
some 2 s in the Python reference; on lognormal lengths of median 500 best_fit fills 99.9 %
and more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping

import numpy as np

from tokenreel import native
from tokenreel.errors import ConfigError

VERSION = 2
MAX_CAPACITY = 2**31 - 1


def pack(
    lengths: np.ndarray, capacity: int, *, method: str = "best_fit"
) -> tuple[np.ndarray, np.ndarray]:
    """Return where each row begins (int64 [rows + 1]) and the items row by row (int64 [n]).

    >>> row_offsets, order = pack(np.array([3, 6, 4, 5]), 9)
    >>> row_offsets.tolist(), order.tolist()
    ([0, 2, 4], [0, 1, 2, 3])
    """
    _check(lengths, capacity, method)
    items = np.ascontiguousarray(lengths, np.uint32)
    # What holds all items holds them in one row, however large it is; the kernel has a table of
    # four bytes for each token of a row.
    capacity = min(capacity, max(int(items.sum()), 1))
    extension = native.extension()
    if extension is None or method == "single":  # which is nothing to compute
        return pack_reference(items, capacity, method=method)
    row_offsets, order = np.empty(len(items) + 1, np.int64), np.empty(len(items), np.int64)
    num_rows = extension.pack(items, capacity, method, row_offsets, order)
    return row_offsets[: num_rows + 1].copy(), order


def pack_reference(
    lengths: np.ndarray, capacity: int, *, method: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel returns, by the Python functions below."""
    # Items in the order they are placed: the longest first, or as they come.
    turn = np.arange(len(lengths))
    if method != "sequential":
        turn = np.argsort(-lengths.astype(np.int64), kind="stable")
    # rows[i]: the row of item i, rows numbered as they were opened.
    rows = np.empty(len(lengths), np.int64)
    rows[turn] = METHODS[method](lengths[turn].tolist(), capacity)
    # Number them by their first items instead: first[r] is the least item of the r-th opened row,
    # and its rank among all of these (argsort of argsort) the row's new number.
    _, first, opened = np.unique(rows, return_index=True, return_inverse=True)
    rows = np.argsort(np.argsort(first, kind="stable"), kind="stable")[opened]
    row_offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(rows))))
    return row_offsets, np.argsort(rows, kind="stable")


def _best_fit(lengths: list[int], capacity: int) -> list[int]:
    """Return the row of each length: the one with the least room that holds it."""
    rooms: list[int] = []  # the distinct rooms of rows that have any, sorted
    stacks: dict[int, list[int]] = {}  # by room, the rows that have just that, last filled on top
    rows, num_rows = [], 0
    for length in lengths:
        at = bisect_left(rooms, length)
        if at == len(rooms):  # no row holds it: open one
            row, room = num_rows, capacity
            num_rows += 1
        else:
            room = rooms[at]
            row = stacks[room].pop()
            if not stacks[room]:
                del rooms[at]
        room -= length
        if room:  # the row goes to those with the room that is left, if any is
            stack = stacks.setdefault(room, [])
            if not stack:
                insort(rooms, room)
            stack.append(row)
        rows.append(row)
    return rows


def _first_fit(lengths: list[int], capacity: int) -> list[int]:
    """Return the row of each length: the first that holds it.

    A binary tree finds it in log n steps: leaf r is row r, and most[i] the most room of any row
    below node i. Node 1 is the root, the children of i are 2 i and 2 i + 1. There are at least as
    many leaves as lengths, all with the full capacity at first, so some row holds each length.
    """
    leaves = 1 << max(len(lengths) - 1, 0).bit_length()
    most = [capacity] * (2 * leaves)
    rows = []
    for length in lengths:
        node = 1
        while node < leaves:  # to the left child, unless no row below it has the room
            node *= 2
            node += most[node] < length
        rows.append(node - leaves)
        most[node] -= length
        while node > 1:  # back up, as far as the most room of a subtree has changed
            node //= 2
            larger = max(most[2 * node], most[2 * node + 1])
            if most[node] == larger:
                break
            most[node] = larger
    return rows


def _sequential(lengths: list[int], capacity: int) -> list[int]:
    """Return the row of each length: the one before's, or a new one where it does not fit."""
    ends = np.cumsum(np.array([0, *lengths], np.int64)).tolist()
    rows: list[int] = []
    row = 0
    while len(rows) < len(lengths):
        begin = len(rows)
        # The row takes lengths begin to stop: all that end within its capacity.
        stop = bisect_right(ends, ends[begin] + capacity, lo=begin) - 1
        rows += [row] * (stop - begin)
        row += 1
    return rows


def _single(lengths: list[int], capacity: int) -> list[int]:
    """Return the row of each length: its own."""
    return list(range(len(lengths)))


METHODS: Mapping[str, Callable[[list[int], int], list[int]]] = {
    "best_fit": _best_fit,
    "first_fit": _first_fit,
    "sequential": _sequential,
    "single": _single,
}


def check_method(method: str) -> str:
    """Return the name of a way to pack, or raise ConfigError."""
    if method not in METHODS:
        raise ConfigError("unknown packing", expected=" or ".join(METHODS), actual=repr(method))
    return method


def _check(lengths: np.ndarray, capacity: int, method: str) -> None:
    check_method(method)
    if not 1 <= capacity <= MAX_CAPACITY:
        raise ConfigError(
            "no row has this capacity", expected=f"1 to {MAX_CAPACITY:,}", actual=capacity
        )
    if not len(lengths):
        return
    outside = (lengths < 1) | (lengths > capacity)
    if outside.any():
        at = int(np.argmax(outside))
        raise ConfigError(
            f"length {at:,} does not go into a row",
            expected=f"1 to {capacity:,}",
            actual=int(lengths[at]),
            remedy="cut or leave out what is too long before packing",
        )
