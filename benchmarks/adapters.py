"""What the faces cost over the feed behind them.

Each face is measured against the numpy feed of the same stores, in the same run, batch by
batch in turn. No batches are made ahead: what is compared is work, not how it overlaps.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.dropins import measure_dropins
from benchmarks.feed import _write_store, recipe_of
from benchmarks.harness import Row, at_least
from tokenreel.feed.feed import Feed

BATCH, LENGTH = 32, 2048
ROUNDS = 600


def measure() -> list[Row]:
    """Return all figures of the faces."""
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    try:
        for number in range(2):
            _write_store(folder / f"store{number}", seed=number)
        return [*_torch(folder), *measure_dropins(folder)]
    finally:
        shutil.rmtree(folder)


def _best(jobs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Run the jobs in turn and return the best time of each in seconds."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def _torch(folder: Path) -> list[Row]:
    """Compare tokenreel.torch with the feed, on plain windows and on packed rows."""
    from tokenreel.feed.fields import FIELDS
    from tokenreel.torch import FeedLoader

    rows = []
    for kind in ("windows", "packed"):
        # Each shows rows in an order of its own: none finds in the cache what another has read.
        recipe, other, third = (
            replace(recipe_of(folder, kind, BATCH, LENGTH), seed=seed) for seed in range(3)
        )
        arrays = Feed(recipe).stream()
        stored = [name for name in FIELDS if name != "attention_mask"]  # what the numpy feed makes
        same = iter(FeedLoader(other, prefetch=0, fields=stored))
        all_fields = iter(FeedLoader(third, prefetch=0))
        seconds = _best(
            {
                "numpy": lambda: next(arrays),  # noqa: B023
                "torch": lambda: next(same),  # noqa: B023
                "mask": lambda: next(all_fields),  # noqa: B023
            }
        )
        speed = {name: BATCH * LENGTH / took / 1e6 for name, took in seconds.items()}
        what = f"{BATCH}x{LENGTH} {kind}"
        rows += [
            Row(name=f"{what}: numpy feed", value=speed["numpy"], unit="M tokens/s"),
            at_least(
                f"{what}: tokenreel.torch",
                speed["torch"],
                "M tokens/s",
                baseline=speed["numpy"],
                target=0.85,
            ),
            at_least(
                f"{what}: tokenreel.torch, with attention_mask",
                speed["mask"],
                "M tokens/s",
                baseline=speed["numpy"],
                target=0.85,
            ),
        ]
    return rows
