"""Run chunks in this process, or in several on this machine.

Workers are spawned, not forked: tokenizers have threads of their own, which a fork
would break. Each worker is held to one thread; parallelism comes from their number.
A worker ends with its parent, however that ends, and leaves Ctrl-C to it. When the
caller stops early the workers are ended at once: a chunk is there whole or not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from tokenreel.builder.encode import Encoder, Job
from tokenreel.builder.engines.carried import encode_or_fail, take
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import ConfigError, TokenreelError, WorkerError

CHUNKS_PER_WORKER = 3
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_here(job: Job, chunks: Iterable[Chunk]) -> Iterator[Summary]:
    """Encode chunk after chunk in this process."""
    encoder = Encoder(job)
    for chunk in chunks:
        yield encoder.encode(chunk)


def run_in_processes(job: Job, chunks: Iterable[Chunk], *, workers: int) -> Iterator[Summary]:
    """Encode chunks in worker processes; a few per worker are under way at any time."""
    pool = _Pool(job, workers)
    waiting: deque[Future[Summary | TokenreelError]] = deque()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(chunk))
            if len(waiting) >= workers * CHUNKS_PER_WORKER:
                yield take(waiting.popleft().result())
        while waiting:
            yield take(waiting.popleft().result())
    except BrokenProcessPool as error:
        raise pool.death() from error
    except BaseException:
        pool.end()
        raise
    finally:
        pool.close()


class _Pool:
    """Worker processes of one job, and what became of them."""

    def __init__(self, job: Job, workers: int) -> None:
        self._spill_folder = job.spill_folder
        self._others = set(multiprocessing.active_children())
        self._processes: set[BaseProcess] = set()
        self._executor = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(pickled(job),),
        )

    def submit(self, chunk: Chunk) -> Future[Summary | TokenreelError]:
        """Give a chunk to a worker, which may be started for it."""
        with _one_thread_each():
            future = self._executor.submit(_encode, chunk)
        self._processes.update(set(multiprocessing.active_children()) - self._others)
        return future

    def end(self) -> None:
        """End the workers where they are."""
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        """Wait until the workers are gone."""
        self._executor.shutdown(cancel_futures=True)

    def death(self) -> WorkerError:
        """Return the error that says how a worker died, and over which documents."""
        self.close()
        # The others are ended by SIGTERM because of the one that died.
        dead = [process for process in self._processes if process.exitcode != -signal.SIGTERM]
        trails = [f"{process.pid}.*.at" for process in dead]
        causes = sorted({_cause(process.exitcode) for process in dead})
        return worker_died(self._spill_folder, trails, cause=" and ".join(causes) or "no trace")


_pickled_job = b""
_encoder: Encoder | None = None


def _start(job: bytes) -> None:
    global _pickled_job  # the one thing a worker process is started with
    _pickled_job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(chunk: Chunk) -> Summary | TokenreelError:
    return encode_or_fail(_open_encoder, chunk)


def _open_encoder() -> Encoder:
    global _encoder  # made with the first chunk, so that what fails in it is reported
    if _encoder is None:
        _encoder = Encoder(pickle.loads(_pickled_job))
    return _encoder


def pickled(job: Job) -> bytes:
    """Return the job as bytes for a worker, or raise ConfigError where it cannot be sent."""
    try:
        return pickle.dumps(job)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the job cannot be sent to other processes: {error}",
            remedy="build with workers=1, or give sources and tokenizer by their paths",
        ) from error


def worker_died(spill_folder: Path, trails: Iterable[str], *, cause: str) -> WorkerError:
    """Return the error about a dead worker; `trails` are patterns of the files it left."""
    found = {path for trail in trails for path in spill_folder.glob(trail)}
    places = sorted(path.read_text() for path in found)
    return WorkerError(
        f"a worker process died ({cause})",
        where="; or ".join(places) or None,
        remedy="run the same build again: what was encoded is kept; with fewer workers it "
        "needs less memory",
    )


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    return f"{name}, as when memory runs out" if exitcode == -signal.SIGKILL else name


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
