"""Planning packed rows: 10⁶ documents of lognormal length, median 500, into rows of 2,048 inputs.

The baseline is best-fit-decreasing in Python, with `sorted` and `bisect`. No token file
is needed: a plan is made from the document index alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_left, insort
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, at_least, at_most, best_seconds
from tokenreel.rows.packed import plan_packed
from tokenreel.rows.packing import pack
from tokenreel.rows.plan_cache import PlanCache
from tokenreel.store.document_index import Offsets
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.shard import IndexFile, Shard
from tokenreel.store.split import Split

NUM_DOCUMENTS = 1_000_000
SEQ_LEN = 2048
CAPACITY = SEQ_LEN + 1
ROUNDS = 5
LOOKUPS = 200


def measure() -> list[Row]:
    """Return all figures of packing."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # one core, whatever the threads
    try:
        return [*_packing(), *_planning()]
    finally:
        os.sched_setaffinity(0, cores)


def _lengths() -> np.ndarray:
    generator = np.random.default_rng(7)
    return np.exp(generator.normal(np.log(500), 1.0, NUM_DOCUMENTS)).astype(np.int64) + 1


def _packing() -> list[Row]:
    lengths = _lengths().clip(1, CAPACITY)
    methods = ("best_fit", "first_fit", "sequential")
    seconds = best_seconds(
        {name: partial(pack, lengths, CAPACITY, method=name) for name in methods}, rounds=ROUNDS
    )
    slow = best_seconds({"python": lambda: _python_best_fit(lengths.tolist())}, rounds=1)["python"]
    rows = [
        at_most("pack 10^6 lengths, best_fit", seconds["best_fit"], "s", target=0.3),
        at_most("pack 10^6 lengths, first_fit", seconds["first_fit"], "s", target=1.0),
        Row(name="pack 10^6 lengths, sequential", value=seconds["sequential"], unit="s"),
        at_least(
            "lengths/s, Python sorted + bisect = 1",
            NUM_DOCUMENTS / seconds["best_fit"],
            "1/s",
            baseline=NUM_DOCUMENTS / slow,
            target=5,
        ),
    ]
    for name, target in (("best_fit", 99.9), ("first_fit", 99.9), ("sequential", 70)):
        offsets, _ = pack(lengths, CAPACITY, method=name)
        filled = 100 * float(lengths.sum()) / ((len(offsets) - 1) * CAPACITY)
        rows.append(at_least(f"utilisation, {name}", filled, "%", baseline=None, target=target))
    return rows


def _python_best_fit(lengths: list[int]) -> int:
    """Return the number of rows; rooms are kept sorted, with a stack of rows for each."""
    rooms: list[int] = []
    stacks: dict[int, list[int]] = {}
    num_rows = 0
    for length in sorted(lengths, reverse=True):
        at = bisect_left(rooms, length)
        room, row = CAPACITY, num_rows
        if at == len(rooms):
            num_rows += 1
        else:
            room = rooms[at]
            row = stacks[room].pop()
            if not stacks[room]:
                del rooms[at]
        room -= length
        if room and not stacks.setdefault(room, []):
            insort(rooms, room)
        if room:
            stacks[room].append(row)
    return num_rows


def _planning() -> list[Row]:
    split = _split_without_tokens()
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    try:
        cache = PlanCache(fingerprint="benchmark", folders=(folder,))
        made = plan_packed(split=split, seq_len=SEQ_LEN, threads=1, cache=cache)
        generator = np.random.default_rng(1)
        batches = generator.integers(0, made.num_rows, (LOOKUPS, 32))
        documents = generator.integers(0, NUM_DOCUMENTS, LOOKUPS).tolist()
        seconds = best_seconds(
            {
                "plan": lambda: plan_packed(split=split, seq_len=SEQ_LEN, threads=1),
                "open": lambda: plan_packed(split=split, seq_len=SEQ_LEN, cache=cache),
                "pieces": lambda: [made.pieces(rows) for rows in batches],
                "find": lambda: [made.find(number) for number in documents],
            },
            rounds=ROUNDS,
        )
    finally:
        shutil.rmtree(folder)
    filled = 100 * (1 - made.ledger["padding"] / made.ledger["slots"])
    return [
        at_most("plan 10^6 documents, cutting and ledger", seconds["plan"], "s", target=1.0),
        at_least("utilisation of the plan", filled, "%", baseline=None, target=99.9),
        at_most("open a stored plan", 1e3 * seconds["open"], "ms", target=10),
        at_most("pieces of 32 random rows", 1e6 * seconds["pieces"] / LOOKUPS, "µs", target=100),
        at_most("find a random document", 1e6 * seconds["find"] / LOOKUPS, "µs", target=1000),
    ]


def _split_without_tokens() -> Split:
    offsets = np.concatenate(([0], np.cumsum(_lengths())))
    nowhere = Path("nowhere.bin")
    tokens = ArrayFile(path=nowhere, dtype=np.dtype("<u2"), count=int(offsets[-1]))
    index = IndexFile(path=nowhere, count=NUM_DOCUMENTS, load=lambda: Offsets(offsets))
    split = Split("train", [Shard(name="nowhere", token_file=tokens, index_file=index)])
    _ = split.shards[0].documents  # checked once, when a store is opened
    return split
