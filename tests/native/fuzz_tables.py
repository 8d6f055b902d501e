"""Kernels called with tables that nobody would write: they refuse, or stay inside.

    python -m tests.native.fuzz_tables SEED CASES

Each case damages what a kernel is given: plan tables, rows, index arrays, buffers of the wrong
size. What a kernel answers is not looked at here (tests/feed compare it with the reference);
that it reads and writes nothing outside, and does nothing undefined, is for the sanitizers to
say. Prints how many cases of each kernel there were, and how many it refused.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from tests.feed.making import recipe_of, write_store
from tests.feed.test_kernel_tables import COLUMNS, WILD, column_of, damaged

from tokenreel import native
from tokenreel.errors import TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.feed.row_maker import Assembler

# What a kernel may raise of arguments that do not fit.
REFUSED = (ValueError, TypeError, OverflowError, MemoryError, BufferError, TokenreelError)
DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
SEQ_LEN = 16


class Fuzz:
    """Cases of every kernel, drawn from one generator."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._chance = np.random.default_rng(seed)
        kernels = native.extension()
        assert kernels is not None
        self._kernels = kernels
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        lengths = [1] * 20 + [30, 5, 12, 7, 60, 2, 9] * 4
        self._feeds: list[tuple[str, Feed]] = []
        for sidecar in (None, "turns", "weights", "mask"):
            path = folder / str(sidecar)
            write_store(path, lengths, sidecar=sidecar, shard_tokens=100)
            for rows in COLUMNS:
                source = Source(name="a", path=path, rows=rows)
                feed = Feed(recipe_of(source, seq_len=SEQ_LEN, global_batch_size=8), threads=2)
                self._feeds.append((rows, feed))

    def run(self, cases: int) -> None:
        """Do so many cases, each of a kernel."""
        ways = [self.plans, self.tables, self.gather, self.narrow, self.pack]
        ways += [self.permute, self.lines, self.within]
        for number in range(cases):
            way = ways[number % len(ways)]
            self.counts[way.__name__] += 1
            try:
                way()
            except REFUSED:
                self.refused[way.__name__] += 1

    def _number(self, most: int) -> int:
        return int(self._chance.integers(0, most))

    def _spoilt(self, array: np.ndarray, times: int = 3) -> np.ndarray:
        """Return a copy with some numbers that cannot be."""
        wrong = np.array(array)
        flat = wrong.reshape(-1)
        for _ in range(self._number(times + 1)):
            if len(flat):
                wild = WILD[self._number(len(WILD))]
                flat[self._number(len(flat))] = np.array(wild).astype(wrong.dtype)
        return wrong

    def _cut(self, array: np.ndarray) -> np.ndarray:
        """Return now and then less of an array, of memory of its own."""
        if self._number(6) or not len(array):
            return np.array(array)
        return np.array(array[: self._number(len(array))])

    def plans(self) -> None:
        """Rows of plans with damaged columns: assembled, weighed, announced."""
        rows, feed = self._feeds[self._number(len(self._feeds))]
        plan = feed.plans[0]
        for name in COLUMNS[rows]:  # type: ignore[index]
            if not self._number(2):
                plan = damaged(plan, name, self._spoilt(column_of(plan, name)))
        assembler = Assembler([plan], feed.order, deal=feed.deal, seq_len=SEQ_LEN, pad_id=0)
        tables, seats = assembler._tables, self._chance.integers(-1, 9, 8)
        assert tables is not None
        step = self._number(40)
        memory = feed._batcher.memory(8)
        tables.fill(feed.order, step, seats, memory, threads=1 + self._number(3))
        tables.weigh(feed.order, step, seats, np.empty(8), np.empty(8, np.int64))
        tables.announce(feed.order, step, seats)

    def tables(self) -> None:
        """Tables of other sizes than they say; their addresses stay what they are."""
        _, feed = self._feeds[self._number(len(self._feeds))]
        tables = feed._batcher._assembler._tables
        assert tables is not None
        feed.batch(0)
        views: list[bytes] = [bytes(memoryview(view)) for view in tables._snapshot.views]
        mixture = [bytes(memoryview(t)) for t in feed.order.eras[0].mixture.tables]  # type: ignore[union-attr]
        given = [np.arange(8).tobytes(), *views, *mixture]
        at = self._number(len(given))
        given[at] = given[at][: self._number(len(given[at]) + 1)] + bytes(self._number(3))
        memory = feed._batcher.memory(8)
        numbers = (self._number(100), self._number(100), self._number(20) - 2)
        arrays = (memory.input_ids, memory.labels, None, None, None, None, memory.source_ids)
        self._kernels.assemble(*numbers, *given, SEQ_LEN, 0, 1, *arrays)

    def _pieces(self) -> tuple[tuple[np.ndarray, ...], str, list[np.ndarray]]:
        """Return shards, their kind, and row_offsets, buffer, start, length of pieces."""
        kind = DTYPES[self._number(len(DTYPES))]
        shards = tuple(self._chance.integers(0, 99, n).astype(kind) for n in (50, 14, 17))
        counts = self._chance.integers(0, 3, 4)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        num = int(offsets[-1])
        arrays = [offsets, self._chance.integers(0, 3, num)]
        arrays += [self._chance.integers(0, 9, num), self._chance.integers(0, 5, num)]
        wrong = self._number(2 * len(arrays))  # one of them, or none
        if wrong < len(arrays):
            arrays[wrong] = self._cut(self._spoilt(arrays[wrong]))
        return shards, kind, [np.array(array) for array in arrays]

    def gather(self) -> None:
        """Rows of pieces that lie anywhere, with spans of anything, or stored weights."""
        shards, kind, (offsets, buffer, start, length) = self._pieces()
        num = len(buffer)
        spans = np.concatenate(([0], np.cumsum(self._chance.integers(0, 3, num))))
        total = int(spans[-1])
        weights = self._chance.random(total).astype(np.float32)
        places = [self._chance.integers(-2, 9, total) for _ in range(2)]
        out = [np.empty((4, SEQ_LEN), t) for t in (np.int64, np.int64, np.int32, np.int32, "f4")]
        out_row = self._spoilt(np.arange(4), self._number(2))
        pieces = (offsets, out_row, buffer, start, length)
        spanned = [spans, *places]
        at = self._number(6)
        if at < len(spanned):
            spanned[at] = self._cut(self._spoilt(spanned[at]))
        more = (*spanned, weights) if self._number(2) else (None,) * 4
        first = np.ones(num, bool)
        stored = tuple(np.ones(len(shard), ("u1", "f4")[self._number(2)]) for shard in shards)
        stored = stored[: self._number(3) + 1] if self._number(2) else ()
        shown: list[np.ndarray | None] = [*pieces, first, *out, *more]
        if self._number(2):  # ids alone, from the first row on
            shown[1] = shown[8] = shown[9] = None
        self._kernels.gather(shards, kind, SEQ_LEN, 0, -100, stored, *shown)

    def narrow(self) -> None:
        """Ids of any type into fewer bytes, with and without ends."""
        kind = DTYPES[self._number(len(DTYPES))]
        ids = self._spoilt(self._chance.integers(0, 99, self._number(60)).astype(kind))
        size = (2, 4, 8)[self._number(3)]
        target = np.empty(self._number(90), np.uint8)
        limit = self._number(200)
        self._kernels.narrow(ids, kind, target, size, limit)
        offsets = self._spoilt(np.sort(self._chance.integers(0, len(ids) + 1, 4)), 1)
        self._kernels.narrow_ended(ids, kind, offsets, target, size, limit, self._number(200))

    def pack(self) -> None:
        """Lengths that fit no row, methods that are none, arrays that are too short."""
        num = self._number(40)
        lengths = self._spoilt(self._chance.integers(1, 20, num).astype(np.uint32), 1)
        offsets, order = np.empty(num + 1, np.int64), np.empty(num, np.int64)
        method = ("best_fit", "first_fit", "in_order", "none")[self._number(4)]
        for given in (method, self._number(4)):
            capacity = self._number(40)
            try:
                self._kernels.pack(lengths, capacity, given, self._cut(offsets), self._cut(order))
            except REFUSED:
                continue

    def permute(self) -> None:
        """Positions outside, sides that are too small, keys that are missing."""
        values = self._spoilt(self._chance.integers(0, 99, 20), 2)
        keys = self._cut(self._chance.integers(0, 2**63, 8).astype(np.uint64))
        sides = [(10, 10, 99), (1, 1, 1), (2**31, 2**31, 2**62), (0, 5, 99), (3, 3, 99), (9, 9, 0)]
        a, b, length = sides[self._number(len(sides))]
        target = self._cut(np.empty(20, np.int64))
        self._kernels.permute(values, target, length, a, b, keys, bool(self._number(2)))

    def lines(self) -> None:
        """JSON that was cut and spoilt."""
        line = b'{"text": "a\\u00e9\\ud83d\\ude00b", "id": [1, {"x": null}], "n": -1.5e3}\n'
        data = bytearray(line * (1 + self._number(3)))
        for _ in range(self._number(4)):
            data[self._number(len(data))] = self._number(256)
        del data[self._number(len(data) + 1) :]
        out, table = np.empty(400, np.uint8), np.empty((8, 8), np.int64)
        self._kernels.scan_lines(bytes(data), 0, b"text", b"id", 1000, out, table)

    def within(self) -> None:
        """Runs of ids that end behind the last id."""
        ids = self._spoilt(self._chance.integers(0, 99, self._number(40)).astype(np.uint32))
        runs = self._spoilt(self._chance.integers(0, 99, (3, 2)).astype(np.uint32))
        self._kernels.any_within(ids, runs)
        self._kernels.count_newlines(ids)


def main() -> None:
    """Fuzz, and say how much."""
    seed, cases = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(seed, Path(folder))
        fuzz.run(cases)
    for name, count in sorted(fuzz.counts.items()):
        # A kernel that refuses everything would be tested by nothing.
        assert fuzz.refused[name] < count, f"{name}: all {count:,} cases were refused"
        print(f"{name} {count:,}, of which {fuzz.refused[name]:,} refused")


if __name__ == "__main__":
    main()
