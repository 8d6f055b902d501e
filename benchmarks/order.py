"""Finding rows of positions and positions of rows, however far a run has come."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from benchmarks.harness import Row, at_least, at_most, best_seconds
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.permutation import Permutation
from tokenreel.order.schedule import Change, normalised

NUM_SOURCES = 8
NUM_ROWS = 10**12
POSITIONS = 1024
FAR = 10**12


def measure() -> list[Row]:
    """Return all figures of the order room."""
    order = _order()
    return [*_locating(order), *_finding(order), *_permuting()]


def _order() -> Order:
    names = [f"source{number}" for number in range(NUM_SOURCES)]
    first = normalised({name: number + 1 for number, name in enumerate(names)}, names)
    last = normalised({name: NUM_SOURCES - number for number, name in enumerate(names)}, names)
    rows = [SourceRows(name=name, num_rows=NUM_ROWS // NUM_SOURCES) for name in names]
    change = Change(start=10**9, shares=last, ramp=10**9)
    return Order(rows, shares=first, changes=[change], seed=7)


def _locating(order: Order) -> list[Row]:
    places = {"at the start": 0, "in the ramp": 1_500_000_000, "at position 10^12": FAR}
    seconds = best_seconds(
        {name: partial(order.locate, start, POSITIONS) for name, start in places.items()},
        rounds=50,
    )
    return [
        at_most(f"locate 1,024 positions of 8 sources {name}", took * 1e6, "µs", target=1000)
        for name, took in seconds.items()
    ]


def _finding(order: Order) -> list[Row]:
    seconds = best_seconds(
        {"where": lambda: order.positions(3, 123_456_789, epochs=range(2))}, rounds=50
    )
    return [at_most("positions of one row in two epochs", seconds["where"] * 1e3, "ms", target=10)]


def _permuting() -> list[Row]:
    """Compare a keyed permutation with numpy's, which must hold all of it in memory."""
    length = 10**7
    permutation = Permutation(length, 7)
    begin = time.perf_counter()
    np.random.default_rng(7).permutation(length)
    whole = time.perf_counter() - begin
    positions = np.arange(POSITIONS)
    seconds = best_seconds({"ours": lambda: permutation.forward(positions)}, rounds=200)
    per_position = seconds["ours"] / POSITIONS
    return [
        Row(name="permutation: ns a position", value=per_position * 1e9, unit="ns"),
        at_least(
            "permutation: numpy's of 10^7 to our first 1,024 positions",
            whole / seconds["ours"],
            "times",
            baseline=None,
            target=100,
        ),
    ]
