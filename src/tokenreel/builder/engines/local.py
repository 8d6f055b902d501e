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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from tokenreel.builder.encode import Encoder, Job
from tokenreel.builder.engines.carried import encode_or_fail, take
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import ConfigError, TokenreelError, WorkerError
from tokenreel.text.tokenizers import Tokenizer

Result = TypeVar("Result")

CHUNKS_PER_WORKER = 3
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_here(job: Job, chunks: Iterable[Chunk]) -> Iterator[Summary]:
    """Encode chunk after chunk in this process."""
    encoder = Encoder(job)
    for chunk in chunks:
        yield encoder.encode(chunk)


class Workers:
    """Worker processes of one build, started before there is work, so that they load meanwhile.

    Each opens the tokenizer as soon as it is up; `run` gives them the job and its chunks.
    """

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        self._count = count
        self._others = set(multiprocessing.active_children())
        self._processes: set[BaseProcess] = set()
        context = multiprocessing.get_context("spawn")
        self._jobs: multiprocessing.Queue[bytes] = context.Queue()
        self._executor = ProcessPoolExecutor(
            count,
            mp_context=context,
            initializer=_start,
            initargs=(pickled(tokenizer), self._jobs),
        )
        for _ in range(count):
            self._submit(_load)

    def run(self, job: Job, chunks: Iterable[Chunk]) -> Iterator[Summary]:
        """Encode chunks; a few per worker are under way at any time."""
        for data in [pickled((job.source, job.plan, job.spill_folder, job.dtype))] * self._count:
            self._jobs.put(data)
        waiting: deque[Future[Summary | TokenreelError]] = deque()
        try:
            for chunk in chunks:
                waiting.append(self._submit(_encode, chunk))
                if len(waiting) >= self._count * CHUNKS_PER_WORKER:
                    yield take(waiting.popleft().result())
            while waiting:
                yield take(waiting.popleft().result())
        except BrokenProcessPool as error:
            raise self._death(job.spill_folder) from error

    def close(self) -> None:
        """End the workers where they are: a chunk is there whole or not at all."""
        for process in self._processes:
            process.kill()
        self._executor.shutdown(cancel_futures=True)
        self._jobs.cancel_join_thread()  # a worker that had no chunk has not taken its job
        self._jobs.close()

    def _submit(self, task: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Give a task to a worker, which may be started for it."""
        with _one_thread_each():
            future = self._executor.submit(task, *arguments)
        self._processes.update(set(multiprocessing.active_children()) - self._others)
        return future

    def _death(self, spill_folder: Path) -> WorkerError:
        """Return the error that says how a worker died, and over which documents."""
        self._executor.shutdown(cancel_futures=True)
        # The others are ended by SIGTERM because of the one that died.
        dead = [process for process in self._processes if process.exitcode != -signal.SIGTERM]
        trails = [f"{process.pid}.*.at" for process in dead]
        causes = sorted({_cause(process.exitcode) for process in dead})
        return worker_died(spill_folder, trails, cause=" and ".join(causes) or "no trace")


@dataclass(slots=True)
class _Worker:
    """What a worker process was started with, and what it has opened of it."""

    pickled_tokenizer: bytes = b""
    jobs: multiprocessing.Queue[bytes] | None = None
    tokenizer: Tokenizer | None = None
    encoder: Encoder | None = None

    def open_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            self.tokenizer = pickle.loads(self.pickled_tokenizer)
        return self.tokenizer

    def open_encoder(self) -> Encoder:
        """Return the encoder, opened with the first chunk: what fails in it is reported."""
        if self.encoder is None:
            tokenizer = self.open_tokenizer()
            if self.jobs is None:
                raise AssertionError("a worker is started with a queue of jobs")
            source, plan, spill_folder, dtype = pickle.loads(self.jobs.get())
            self.encoder = Encoder(
                Job(
                    source=source,
                    tokenizer=tokenizer,
                    plan=plan,
                    spill_folder=spill_folder,
                    dtype=dtype,
                ),
                trail_folder=spill_folder,
            )
        return self.encoder


_worker = _Worker()


def _start(tokenizer: bytes, jobs: multiprocessing.Queue[bytes]) -> None:
    _worker.pickled_tokenizer = tokenizer
    _worker.jobs = jobs
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _load() -> None:
    # Tried again with the first chunk, which says what is wrong.
    with suppress(Exception):
        _worker.open_tokenizer()


def _encode(chunk: Chunk) -> Summary | TokenreelError:
    return encode_or_fail(_worker.open_encoder, chunk)


def pickled(job: object) -> bytes:
    """Return a job, or a part of it, as bytes; ConfigError says that it cannot be sent."""
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
