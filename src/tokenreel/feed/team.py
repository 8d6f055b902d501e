"""Threads that share the work on a batch; what they run releases the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from tokenreel.errors import ConfigError

LEAST_TOKENS = 1 << 17  # a share worth waking a thread for, which takes some 50 µs
MOST_THREADS = 1024

Done = TypeVar("Done")


class Team:
    """So many threads, the caller's among them; the others start when there is enough to do."""

    def __init__(self, size: int = 1) -> None:
        if not 1 <= size <= MOST_THREADS:
            raise ConfigError(
                "bad number of threads", expected=f"1 to {MOST_THREADS:,}", actual=size
            )
        self.size = size
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def num_parts(self, num_rows: int, seq_len: int) -> int:
        """Return into how many parts it pays to divide the work on so many rows."""
        if self.size == 1:
            return 1
        return max(min(self.size, num_rows, num_rows * seq_len // LEAST_TOKENS), 1)

    def split(self, work: Callable[[int, int], Done], num_rows: int, parts: int) -> list[Done]:
        """Return work(start, stop) for each part of the rows, in order, done at the same time."""
        bounds = [num_rows * part // parts for part in range(parts + 1)]
        others = [self._others().submit(work, *part) for part in list(pairwise(bounds))[1:]]
        try:
            mine = work(0, bounds[1])
        finally:
            for other in others:  # nobody may write any more when this returns, or raises
                other.exception()
        return [mine, *(other.result() for other in others)]

    def _others(self) -> ThreadPoolExecutor:
        """Return the threads; a process that was forked has none of its parent's."""
        if self._pool is None or self._pool[0] != os.getpid():
            pool = ThreadPoolExecutor(self.size - 1, thread_name_prefix="tokenreel-rows")
            self._pool = (os.getpid(), pool)
        return self._pool[1]


ALONE = Team()
