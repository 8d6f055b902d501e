"""Finding rows of positions and positions of rows, however far a run has come."""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial

import numpy as np

from benchmarks.harness import Row, at_least, at_most, best_seconds
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.permutation import Permutation
from tokenreel.order.schedule import Change, normalised
from tokenreel.store.writer import StoreWriter

NUM_SOURCES = 8
NUM_ROWS = 10**12
POSITIONS = 1024
FAR = 10**12


def measure() -> list[Row]:
    """Return all figures of the order room."""
    order = _order()
    return [*_locating(order), *_finding(order), *_permuting(), *_many_sources(), *_many_changes()]


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


def _many_sources() -> list[Row]:
    """Make batches of 256 rows of 10,000 sources, whose stores are open."""
    count = 10_000
    with tempfile.TemporaryDirectory(prefix="tokenreel-bench-") as folder:
        with StoreWriter(f"{folder}/s", vocab_size=100) as writer:
            writer.add(np.arange(64 * 300 + 1) % 100)
        weights = np.random.default_rng(0).dirichlet(np.ones(count)) + 1e-9
        sources = [
            Source(name=f"s{number}", path=f"{folder}/s", weight=float(weight))
            for number, weight in enumerate(weights)
        ]
        feed = Feed(Recipe(seq_len=64, global_batch_size=256, sources=sources))
        begin = time.perf_counter()
        feed.batch(0)
        first = time.perf_counter() - begin
        seconds = []
        for step in range(1, 300):
            begin = time.perf_counter()
            feed.batch(step)
            seconds.append(time.perf_counter() - begin)
    return [
        at_most("10,000 sources: first batch of 256 rows", first * 1e3, "ms", target=1000),
        at_most(
            "10,000 sources: a batch of 256 rows, median", np.median(seconds) * 1e3, "ms", target=5
        ),
    ]


def _many_changes() -> list[Row]:
    """Load a state in which the weights were changed in each of 2,000 steps."""
    with tempfile.TemporaryDirectory(prefix="tokenreel-bench-") as folder:
        with StoreWriter(f"{folder}/s", vocab_size=100) as writer:
            writer.add(np.arange(64 * 300 + 1) % 100)
        sources = [Source(name=name, path=f"{folder}/s") for name in ("a", "b")]
        feed = Feed(Recipe(seq_len=64, global_batch_size=8, sources=sources))
        for step, weight in enumerate(np.random.default_rng(0).random(2000)):
            feed.step = step
            feed.change_weights({"a": weight, "b": 1 - weight})
        state = json.loads(json.dumps(feed.state_dict()))
        seconds = best_seconds({"load": lambda: feed.load_state_dict(state)}, rounds=10)
    return [
        at_most("state with 2,000 changes: to load", seconds["load"] * 1e3, "ms", target=50),
        Row(
            name="state with 2,000 changes of two random weights: size",
            value=len(json.dumps(state)) / 1e3,
            unit="KB",
        ),
    ]


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
