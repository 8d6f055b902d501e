"""Make the next batches while the trainer works on this one.

One thread computes ahead (gathering releases the GIL); at most `depth` batches wait.
What the consumer has taken is all the state there is: a restored stream starts at its
step, whatever was waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")


def ahead(
    make: Callable[[int], Made], steps: Iterator[int], *, depth: int
) -> Generator[Made, None, None]:
    """Yield make(step) for each step in order, computing up to `depth` ahead."""
    if depth == 0:
        yield from map(make, steps)
        return
    waiting: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="tokenreel-feed")
    try:
        for step in steps:
            waiting.append(pool.submit(make, step))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
