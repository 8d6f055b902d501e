"""Batches end to end, against the least that any loader must do.

The floor is one numpy cast-copy of as many tokens, from contiguous memory, into the two
int64 arrays; the peer is torch's DataLoader without workers over a memory map. Two threads
are compared with one, and so are two processes that share nothing. What the machine allows
at all is said by a bare gather in C, which knows its rows beforehand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.bare_gather import bare_gather, compile_gather
from benchmarks.harness import Row, at_least
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.rows.kinds import Rows
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.writer import StoreWriter
from tokenreel.text.turns import TURN

NUM_TOKENS = 100_000_000
SHAPES = ((32, 2048, 0.6, 6.0), (8, 8192, 0.6, 3.0), (256, 256, 0.4, 15.0))
ROUNDS = 40
TURN_BATCHES = 32  # made in a row in each turn, so that each job has warmed its own caches


def measure() -> list[Row]:
    """Return all figures of feeding."""
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    try:
        for number in range(2):
            _write_store(folder / f"store{number}", seed=number)
        rows: list[Row] = []
        for shape in SHAPES:
            rows += _windows(folder, *shape)
            rows += _fresh_processes(folder, *shape[:2])
        _write_chats(folder / "chats")
        return [
            *rows,
            *_rows_of_documents(folder),
            _threads(folder),
            _processes(folder, 32, 2048),
            _shared_rows(folder),
            _processes(folder, 512, 4096),
        ]
    finally:
        shutil.rmtree(folder)


def _write_store(path: Path, *, seed: int) -> None:
    generator = np.random.default_rng(seed)
    lengths = np.exp(generator.normal(np.log(500), 1.0, NUM_TOKENS // 900)).astype(np.int64) + 2
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    ids = generator.integers(0, 50_000, offsets[-1], dtype=np.uint16)
    with StoreWriter(path, vocab_size=50_000) as writer:
        writer.add_batch(DocumentBatch(ids=ids, offsets=offsets))


def _warm(feed: Feed) -> Feed:
    """Show every row about once: from then on the cache is warm and every page is mapped."""
    for step in range(_steps_of_pass(feed)):
        feed.batch(step)
    return feed


def _steps_of_pass(feed: Feed) -> int:
    """Return how many steps have as many rows as all sources together."""
    return sum(plan.num_rows for plan in feed.plans) // feed.recipe.global_batch_size + 1


def recipe_of(folder: Path | str, rows: Rows, batch_size: int, seq_len: int) -> Recipe:
    """Return the recipe of two stores, mixed."""
    sources = [
        Source(name="a", path=f"{folder}/store0", rows=rows, weight=0.7),
        Source(name="b", path=f"{folder}/store1", rows=rows, weight=0.3),
    ]
    return Recipe(seq_len=seq_len, global_batch_size=batch_size, seed=7, sources=sources)


def _feed(folder: Path, rows: Rows, batch_size: int, seq_len: int) -> Feed:
    return _warm(Feed(recipe_of(folder, rows, batch_size, seq_len)))


def _best(jobs: dict[str, Callable[[int], object]]) -> dict[str, float]:
    """Run the jobs in turns and return the best time of a batch: what code costs, not the noise.

    Each turn begins with another job: what one finds in the caches depends on the one before.
    """
    names = list(jobs)
    best = dict.fromkeys(names, float("inf"))
    for turn in range(ROUNDS):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            begin = time.perf_counter()
            for number in range(turn * TURN_BATCHES, (turn + 1) * TURN_BATCHES):
                jobs[name](number)
            best[name] = min(best[name], (time.perf_counter() - begin) / TURN_BATCHES)
    return best


def _floor(num_tokens: int) -> Callable[[int], None]:
    tokens = np.random.default_rng(0).integers(0, 50_000, num_tokens + 1).astype(np.uint16)
    inputs, labels = np.empty(num_tokens, np.int64), np.empty(num_tokens, np.int64)

    def copy(number: int) -> None:
        inputs[:] = tokens[:-1]
        labels[:] = tokens[1:]

    return copy


class _Reused:
    """Make batches into the memory of the one before, as a ring of buffers does."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._out: Batch | None = None

    def __call__(self, number: int) -> None:
        self._out = self._feed.batch(number, out=self._out)


def _windows(folder: Path, batch: int, length: int, target: float, peer: float) -> list[Row]:
    feed = _feed(folder, "windows", batch, length)
    loader = _torch_loader(folder / "store0", batch, length)
    jobs: dict[str, Callable[[int], object]] = {
        "floor": _floor(batch * length),
        "feed": _Reused(feed),
        "plain": lambda number: feed.batch(number + ROUNDS * TURN_BATCHES),
        "torch": lambda number: next(loader),
    }
    library = compile_gather()
    if library is not None:
        tokens = feed.stores[0]["train"].shards[0].tokens
        num_batches = ROUNDS * TURN_BATCHES
        jobs["bare"] = bare_gather(
            library, tokens, batch=batch, length=length, num_batches=num_batches
        )
    seconds = _best(jobs)
    speed = {name: batch * length / took / 1e6 for name, took in seconds.items()}
    shape = f"{batch}x{length}"
    unit = "M tokens/s"
    rows = [Row(name=f"{shape}: floor, two cast-copies", value=speed["floor"], unit=unit)]
    if "bare" in speed:
        name, ratio = f"{shape}: bare gather in C, one source", speed["bare"] / speed["floor"]
        rows.append(Row(name=name, value=speed["bare"], unit=unit, ratio=ratio))
    return [
        *rows,
        at_least(
            f"{shape}: feed.batch, two sources mixed",
            speed["feed"],
            unit,
            baseline=speed["floor"],
            target=target,
        ),
        Row(
            name=f"{shape}: the same without out=",
            value=speed["plain"],
            unit=unit,
            ratio=speed["plain"] / speed["floor"],
        ),
        at_least(
            f"{shape}: feed.batch to torch DataLoader",
            speed["feed"],
            unit,
            baseline=speed["torch"],
            target=peer,
        ),
    ]


FRESH = """
import sys, time
from benchmarks.feed import recipe_of
from tokenreel.feed.feed import Feed
way, folder, batch, length = sys.argv[1:]
feed = Feed(recipe_of(folder, "windows", int(batch), int(length)))
for store in feed.stores:  # warm, without a batch having been made
    for shard in store["train"].shards:
        int(shard.tokens.sum())
made, stream, best = None, iter(feed), float("inf")
for turn in range(8):
    begin = time.perf_counter()
    for step in range(50 * turn, 50 * turn + 50):
        if way == "out":
            made = feed.batch(step, out=made)
        elif way == "plain":
            made = feed.batch(step)
        else:
            made = next(stream)
    best = min(best, time.perf_counter() - begin)
print(int(batch) * int(length) * 50 / best / 1e6)
"""


def _fresh_processes(folder: Path, batch: int, length: int) -> list[Row]:
    """Make the first batches of a process: into one batch's memory, plainly, and by iteration.

    Nobody has allocated anything yet, so memory that is not used again costs page faults.
    """
    speeds: dict[str, list[float]] = {"out": [], "plain": [], "iterated": []}
    for turn in range(5):
        ways = list(speeds)
        for way in ways[turn % 3 :] + ways[: turn % 3]:
            run = [sys.executable, "-c", FRESH, way, str(folder), str(batch), str(length)]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            speeds[way].append(float(done.stdout))
    rows = []
    for way, target in (("plain", 0.85), ("iterated", 0.75)):
        ratios = [one / out for one, out in zip(speeds[way], speeds["out"], strict=True)]
        value, ratio = float(np.median(speeds[way])), float(np.median(ratios))
        name = f"{batch}x{length}: first batches of a process, {way}, to those with out="
        rows.append(
            Row(
                name=name,
                value=value,
                unit="M tokens/s",
                ratio=ratio,
                target=f">= {target:g}",
                met=ratio >= target,
            )
        )
    return rows


def _torch_loader(path: Path, batch: int, length: int):  # type: ignore[no-untyped-def]
    import torch

    shards = sorted((path / "train").glob("*.bin"))
    tokens = np.memmap(shards[0], dtype=np.uint16, mode="r")

    class Windows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return (len(tokens) - 1) // length

        def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
            row = tokens[number * length : number * length + length + 1].astype(np.int64)
            return torch.from_numpy(row[:-1]), torch.from_numpy(row[1:])

    def forever():
        while True:
            yield from torch.utils.data.DataLoader(Windows(), batch_size=batch, shuffle=True)

    return forever()


def _rows_of_documents(folder: Path) -> list[Row]:
    """Measure rows with segments, positions and weights: 28 bytes a slot, where windows have 16."""
    batch, length = 32, 2048
    feeds = {
        "packed": _feed(folder, "packed", batch, length),
        "document windows": _feed(folder, "document_windows", batch, length),
        "episodes": _feed(folder, "episodes", batch, length),
        "packed chats": _chat_feed(folder, batch, length),
    }
    seconds = _best(
        {"floor": _floor(batch * length), **{name: _Reused(feed) for name, feed in feeds.items()}}
    )
    speed = {name: batch * length / took / 1e6 for name, took in seconds.items()}
    return [
        at_least(
            f"32x2048: {name}, with segments, positions and weights",
            speed[name],
            "M tokens/s",
            baseline=speed["floor"],
            target=0.25,
        )
        for name in feeds
    ]


def _write_chats(path: Path) -> None:
    """Write chats of four turns, the second and fourth trained."""
    generator = np.random.default_rng(2)
    num_chats = 40_000
    lengths = np.exp(generator.normal(np.log(100), 0.7, (num_chats, 4))).astype(np.int64) + 4
    ends = np.cumsum(lengths, axis=1)
    offsets = np.concatenate(([0], np.cumsum(ends[:, -1])))
    turns = np.zeros(num_chats * 4, TURN)
    turns["start"], turns["length"] = (ends - lengths).ravel(), lengths.ravel()
    turns["head"] = 2
    turns["weight"] = np.tile(np.array([0, 1, 0, 1], np.float32), num_chats)
    ids = generator.integers(0, 50_000, offsets[-1], dtype=np.uint16)
    with StoreWriter(path, vocab_size=50_000, turns=True) as writer:
        turn_offsets = np.arange(0, len(turns) + 1, 4)
        writer.add_batch(
            DocumentBatch(ids=ids, offsets=offsets, turns=turns, turn_offsets=turn_offsets)
        )


def _chat_feed(folder: Path, batch_size: int, seq_len: int) -> Feed:
    source = Source(name="chats", path=str(folder / "chats"), rows="packed")
    return Feed(Recipe(seq_len=seq_len, global_batch_size=batch_size, seed=7, sources=[source]))


def _threads(folder: Path) -> Row:
    """Make the same batches on one thread and on two."""
    feed = _feed(folder, "windows", 32, 2048)
    steps = 4000

    def work(start: int, stop: int) -> None:
        out = None
        for step in range(start, stop):
            out = feed.batch(step, out=out)

    best = {1: float("inf"), 2: float("inf")}
    for _ in range(5):
        for count in best:
            bounds = np.linspace(0, steps, count + 1).astype(int)
            workers = [
                threading.Thread(target=work, args=(bounds[i], bounds[i + 1])) for i in range(count)
            ]
            begin = time.perf_counter()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            best[count] = min(best[count], time.perf_counter() - begin)
    tokens = steps * 32 * 2048 / 1e6
    return at_least(
        "32x2048: two threads, a batch each, to one",
        tokens / best[2],
        "M tokens/s",
        baseline=tokens / best[1],
        target=1.6,
    )


CHILD = """
import sys
from pathlib import Path
from benchmarks.feed import _feed, _steps_of_pass
folder, batch, length = sys.argv[1:]
feed = _feed(Path(folder), "windows", int(batch), int(length))
print("ready", flush=True)
for line in sys.stdin:
    out = None
    for step in range(int(line)):
        out = feed.batch(step % _steps_of_pass(feed), out=out)
    print("done", flush=True)
"""


def _processes(folder: Path, batch: int, length: int) -> Row:
    """Make as many batches in one process and in two at once: what the machine has to give."""
    run = [sys.executable, "-c", CHILD, str(folder), str(batch), str(length)]
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        children = [
            stack.enter_context(subprocess.Popen(run, stdin=pipe, stdout=pipe, text=True))
            for _ in range(2)
        ]
        for child in children:
            _answer(child)
        steps = max(60, 4000 * 65_536 // (batch * length)) // 2 * 2
        best = {1: float("inf"), 2: float("inf")}
        for _ in range(5):
            for count in best:
                begin = time.perf_counter()
                for child in children[:count]:
                    print(steps // count, file=child.stdin, flush=True)
                for child in children[:count]:
                    _answer(child)
                best[count] = min(best[count], time.perf_counter() - begin)
        for child in children:
            child.communicate()
    return Row(
        name=f"{batch}x{length}: two processes that share nothing, to one",
        value=steps * batch * length / best[2] / 1e6,
        unit="M tokens/s",
        ratio=best[1] / best[2],
    )


def _answer(child: subprocess.Popen[str]) -> None:
    if child.stdout is None or not child.stdout.readline():
        raise RuntimeError("a process of the benchmark has ended early")


def _shared_rows(folder: Path) -> Row:
    """Make one large batch on one thread and on two that share its rows."""
    batch, length = 512, 4096
    sources = _feed(folder, "windows", batch, length).recipe
    feeds = {count: Feed(sources, threads=count) for count in (1, 2)}
    reused = {count: _Reused(feed) for count, feed in feeds.items()}
    best = {1: float("inf"), 2: float("inf")}
    for number in range(60):
        for count, job in reused.items():
            begin = time.perf_counter()
            job(number)
            best[count] = min(best[count], time.perf_counter() - begin)
    tokens = batch * length / 1e6
    return at_least(
        "512x4096: two threads that share a batch's rows, to one",
        tokens / best[2],
        "M tokens/s",
        baseline=tokens / best[1],
        target=1.6,
    )
