"""Run chunks on a Ray cluster.

Tasks are idempotent: a chunk appears in the spill folder by one rename, so a task
that Ray runs twice, because a worker or a node was lost, changes nothing. All nodes
must see the sources, the tokenizer and the target under the same paths.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

from tokenreel.builder.encode import Job, encode_chunk
from tokenreel.builder.engines.local import ONE_THREAD, worker_died
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import MissingExtraError

MAX_RETRIES = 3
CHUNKS_PER_CPU = 3


def run_on_ray(
    job: Job, chunks: Iterator[Chunk], *, address: str, workers: int | None
) -> Iterator[Summary]:
    """Encode chunks as Ray tasks; `address` is "local", "auto" or that of a cluster."""
    ray = _import_ray()
    started = not ray.is_initialized()
    if started:
        ray.init(
            address=address,
            num_cpus=workers if address == "local" else None,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
    try:
        limit = CHUNKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1))
        yield from _run(ray, job, chunks, limit)
    finally:
        if started:
            ray.shutdown()


def _run(ray: Any, job: Job, chunks: Iterator[Chunk], limit: int) -> Iterator[Summary]:
    task = ray.remote(max_retries=MAX_RETRIES, num_cpus=1)(_encode)
    name, shared = uuid.uuid4().hex, ray.put(pickle.dumps(job))
    waiting: deque[Any] = deque()
    for chunk in chunks:
        waiting.append(task.remote(name, shared, chunk))
        if len(waiting) >= limit:
            yield _result(ray, waiting.popleft(), job)
    while waiting:
        yield _result(ray, waiting.popleft(), job)


_jobs: dict[str, Job] = {}


def _encode(name: str, pickled: bytes, chunk: Chunk) -> Summary:
    """Encode a chunk in a Ray worker, which opens the job (its tokenizer above all) only once."""
    if name not in _jobs:
        os.environ.update(ONE_THREAD)
        _jobs.clear()
        _jobs[name] = pickle.loads(pickled)
    return encode_chunk(_jobs[name], chunk)


def _result(ray: Any, reference: Any, job: Job) -> Summary:
    try:
        summary: Summary = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RaySystemError as error:
        raise worker_died(job.spill_folder) from error
    except ray.exceptions.WorkerCrashedError as error:
        raise worker_died(job.spill_folder) from error
    return summary


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", extra="ray", purpose="the Ray engine") from None
    return ray
