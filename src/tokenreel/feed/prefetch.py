"""Make the next batches while the trainer works on this one.

Threads compute ahead (making a batch releases the GIL); at most `depth` batches wait.
What the consumer has taken is all the state there is: a restored stream starts at its
step, whatever was waiting.

A stream that is closed, or let go of, waits for its threads. One that the garbage collector finds
in a cycle does not: the collector may run in the middle of anything, also where a thread is being
started and holds the lock that waiting for a thread needs (before Python 3.13). Its threads end
with the batch that they are making, in memory that they hold.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tokenreel.errors import ConfigError

MOST_THREADS = 256
_running = threading.local()  # is_collecting: the garbage collector runs in this thread
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
    process, is_finalizing, running = os.getpid(), sys.is_finalizing, _running
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
            is_collected = getattr(running, "is_collecting", False)
            pool.shutdown(wait=not is_collected, cancel_futures=True)


def _note_collection(phase: str, info: dict[str, Any]) -> None:
    _running.is_collecting = phase == "start"


gc.callbacks.append(_note_collection)


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
