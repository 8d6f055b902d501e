"""Run chunks in this process, or in several on this machine.

Workers are forked where that is safe: on Linux, from a process of one thread. They then have
at once what this process has loaded, the tokenizer's tables among it, and a script needs no
`if __name__ == "__main__":`. A process with more threads, as a notebook is, spawns them, since
a fork may copy a lock that one of its threads holds; loading then takes each half a second.

Each worker is held to one thread; parallelism comes from their number. A worker ends with its
parent, however that ends, and leaves Ctrl-C to it. When the caller stops early the workers are
ended at once: a chunk is there whole or not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from tokenreel.builder.encode import Advance, Encoder, Job
from tokenreel.builder.engines.carried import encode_or_fail, take
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import ConfigError, TokenreelError, WorkerError
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.text.tokenizers.engine import ONE_THREAD, one_thread

Result = TypeVar("Result")

CHUNKS_PER_WORKER = 3
MAIN_SECONDS = 5.0  # that a worker may need to run the script it was started by up to its build
LOOK_SECONDS = 0.1  # between two looks at how far the workers are
STARTED_MAIN_AGAIN = 86  # exit code of a worker that began to run the script it was started by


def run_here(job: Job, chunks: Iterable[Chunk], *, advance: Advance) -> Iterator[Summary]:
    """Encode chunk after chunk in this process."""
    encoder = Encoder(job, advance=advance)
    for chunk in chunks:
        yield encoder.encode(chunk)


class Workers:
    """Worker processes of one build, started before there is work, so that they load meanwhile.

    Each opens the tokenizer as soon as it is up; `run` gives them the job and its chunks.
    """

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        end_if_main_is_imported()
        self._count = count
        self._others = set(multiprocessing.active_children())
        self._processes: set[BaseProcess] = set()
        self.has_started_main = False  # whether a worker began to run the script of this process
        self._is_forked = is_forked = _may_fork()
        context: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
        self._jobs: multiprocessing.Queue[bytes] = context.Queue()
        self._done_bytes = context.Value("q", 0)
        self._shown_bytes = 0
        given = tokenizer if is_forked else pickled(tokenizer)
        self._executor = ProcessPoolExecutor(
            count,
            mp_context=context,
            initializer=_start,
            initargs=(given, self._jobs, self._done_bytes),
        )
        for _ in range(count):
            self._submit(_load)

    def run(self, job: Job, chunks: Iterable[Chunk], *, advance: Advance) -> Iterator[Summary]:
        """Encode chunks; a few per worker are under way at any time."""
        for data in [pickled((job.source, job.plan, job.spill_folder, job.dtype))] * self._count:
            self._jobs.put(data)
        waiting: deque[Future[Summary | TokenreelError]] = deque()
        try:
            for chunk in chunks:
                waiting.append(self._submit(_encode, chunk))
                if len(waiting) >= self._count * CHUNKS_PER_WORKER:
                    yield self._wait(waiting.popleft(), advance)
            while waiting:
                yield self._wait(waiting.popleft(), advance)
        except BrokenProcessPool:
            raise self._death(job.spill_folder) from None

    def _wait(self, future: Future[Summary | TokenreelError], advance: Advance) -> Summary:
        """Return the result once it is there, and report until then what the workers have done."""
        while True:
            wait([future], timeout=LOOK_SECONDS)
            done = int(self._done_bytes.get_obj().value)
            advance(done - self._shown_bytes)
            self._shown_bytes = done
            if future.done():
                return take(future.result())

    def close(self) -> None:
        """End the workers where they are: a chunk is there whole or not at all."""
        self._look_for_main()
        for process in self._processes:
            process.kill()
        self._executor.shutdown(cancel_futures=True)
        self._jobs.cancel_join_thread()  # a worker that had no chunk has not taken its job
        self._jobs.close()

    def wait_for_main(self) -> None:
        """Wait until a worker that runs the script of this process has come to its build."""
        if self._is_forked:
            return
        ends = [process.sentinel for process in self._processes if process.is_alive()]
        connection.wait(ends, timeout=MAIN_SECONDS)
        self._look_for_main()

    def _look_for_main(self) -> None:
        codes = {process.exitcode for process in self._processes}
        self.has_started_main |= STARTED_MAIN_AGAIN in codes

    def _submit(self, task: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Give a task to a worker, which may be started for it."""
        with one_thread():
            future = self._executor.submit(task, *arguments)
        self._processes.update(set(multiprocessing.active_children()) - self._others)
        return future

    def _death(self, spill_folder: Path) -> TokenreelError:
        """Return the error that says how a worker died, and over which documents."""
        self._executor.shutdown(cancel_futures=True)
        self._look_for_main()
        if self.has_started_main:
            return no_main_guard()
        # The others are ended by SIGTERM because of the one that died.
        dead = [process for process in self._processes if process.exitcode != -signal.SIGTERM]
        trails = [f"{process.pid}.*.at" for process in dead]
        has_trail = any(True for trail in trails for _ in spill_folder.glob(trail))
        if not (self._is_forked or has_trail) and any(process.exitcode == 1 for process in dead):
            return no_main_guard("fails there, as is printed above")
        causes = sorted({_cause(process.exitcode) for process in dead})
        return worker_died(spill_folder, trails, cause=" and ".join(causes) or "no trace")


def end_if_main_is_imported() -> None:
    """End this process if it is a worker that is about to run its script a second time.

    A spawned process imports the script that its parent runs. Where the script builds as soon as
    it is imported, its parent says what is missing (`no_main_guard`).
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(STARTED_MAIN_AGAIN)


def no_main_guard(what: str = "builds when it is imported") -> ConfigError:
    """Return the error about a script that builds when imported: it has no main guard."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return ConfigError(
        f"each worker process imports this script, and the script {what}",
        where=script,
        remedy='put the call of build under if __name__ == "__main__":, or build with workers=1',
    )


def _may_fork() -> bool:
    """Tell whether workers can be forked: on Linux, if this process has a single thread."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    if "jax" in sys.modules:  # it has threads, and warns of every fork
        return False
    if _num_threads() == 1:
        return True
    # numpy's OpenBLAS has threads that it ends before a fork, to start them again when they are
    # needed. A process that ends at once makes it do so: threads that are left are of others.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return _num_threads() == 1


def _num_threads() -> int:
    """Count the threads of this process, those of libraries too."""
    return len(list(Path("/proc/self/task").iterdir()))


@dataclass(slots=True)
class _Worker:
    """What a worker process was started with, and what it has opened of it."""

    given: Tokenizer | bytes = b""
    jobs: multiprocessing.Queue[bytes] | None = None
    done_bytes: Any = None
    tokenizer: Tokenizer | None = None
    encoder: Encoder | None = None

    def open_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            given = self.given
            self.tokenizer = pickle.loads(given) if isinstance(given, bytes) else given
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
                advance=self.advance,
            )
        return self.encoder

    def advance(self, num_bytes: int) -> None:
        with self.done_bytes.get_lock():
            self.done_bytes.value += num_bytes


_worker = _Worker()


def _start(
    tokenizer: Tokenizer | bytes, jobs: multiprocessing.Queue[bytes], done_bytes: Any
) -> None:
    _worker.given = tokenizer
    _worker.jobs = jobs
    _worker.done_bytes = done_bytes
    os.environ.update(ONE_THREAD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        signal.signal(number, signal.SIG_DFL)  # a handler of the parent's may have come along
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
