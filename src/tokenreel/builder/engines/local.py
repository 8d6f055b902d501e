"""Run chunks in this process, or in several on this machine.

Workers are spawned, not forked: tokenizers have threads of their own, which a fork
would break. Each worker is held to one thread; parallelism comes from their number.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tokenreel.builder.encode import Job, encode_chunk
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import WorkerError

CHUNKS_PER_WORKER = 3
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_here(job: Job, chunks: Iterator[Chunk]) -> Iterator[Summary]:
    """Encode chunk after chunk in this process."""
    for chunk in chunks:
        yield encode_chunk(job, chunk)


def run_in_processes(job: Job, chunks: Iterator[Chunk], *, workers: int) -> Iterator[Summary]:
    """Encode chunks in worker processes; a few per worker are under way at any time."""
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=_start, initargs=(job,)
        )
        waiting: deque[Future[Summary]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_encode, chunk))
                if len(waiting) >= workers * CHUNKS_PER_WORKER:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise worker_died(job.spill_folder) from error
        finally:
            pool.shutdown(cancel_futures=True)


_job: Job | None = None


def _start(job: Job) -> None:
    global _job  # the one thing a worker process is started with
    _job = job


def _encode(chunk: Chunk) -> Summary:
    if _job is None:
        raise RuntimeError("the worker was not started with a job")
    return encode_chunk(_job, chunk)


def worker_died(spill_folder: Path) -> WorkerError:
    """Return the error that says what the workers were at when one of them died."""
    places = sorted(path.read_text() for path in spill_folder.glob("*.at"))
    return WorkerError(
        "a worker process died (killed, out of memory, or a crash in native code)",
        where="; or ".join(f"in the documents from {place} on" for place in places) or None,
        remedy="run the same build again: what was encoded is kept; with fewer workers it "
        "needs less memory",
    )


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Hold the libraries of processes that are started inside the block to one thread."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
