"""Make the next batches while the trainer works on this one.

Threads compute ahead (making a batch releases the GIL); at most `depth` batches wait.
What the consumer has taken is all the state there is: a restored stream starts at its
step, whatever was waiting.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tokenreel.errors import ConfigError

MOST_THREADS = 256
Item = TypeVar("Item")
Made = TypeVar("Made")


def make_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], *, depth: int, threads: int = 1
) -> Generator[Made, None, None]:
    """Yield make(item) for each item in order; up to `depth` are made before they are asked for.

    An item is begun only when the one `depth` + 1 before it has been taken and the consumer
    asks for more.
    """
    if depth == 0:
        yield from map(make, items)
        return
    # Kept here: when the interpreter ends, modules lose their names before this generator ends.
    process, is_finalizing = os.getpid(), sys.is_finalizing
    waiting: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="tokenreel-feed")
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
                _check_process(process)
        while waiting:
            yield waiting.popleft().result()
            _check_process(process)
    finally:
        if not is_finalizing():  # else the interpreter has joined the threads already
            pool.shutdown(wait=True, cancel_futures=True)


def checked_threads(threads: int) -> int:
    """Return a number of threads, or raise ConfigError."""
    if not 1 <= threads <= MOST_THREADS:
        raise ConfigError(
            "bad number of threads", expected=f"1 to {MOST_THREADS:,}", actual=threads
        )
    return threads


def _check_process(process: int) -> None:
    """Refuse to wait for threads that a forked process has not inherited."""
    if os.getpid() != process:
        raise ConfigError(
            "the stream was begun in another process",
            expected=f"process {process}",
            actual=f"process {os.getpid()}",
            remedy="begin a stream in each process",
        )
