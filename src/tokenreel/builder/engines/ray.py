"""Run chunks on a Ray cluster.

Tasks are idempotent: a chunk appears in the spill folder by one rename, so a task
that Ray runs twice, because a worker or a node was lost, changes nothing. All nodes
must see the sources, the tokenizer and the target under the same paths.

A cluster that is not there is noticed in seconds: the address is tried before Ray is
asked to connect, which by itself would wait for minutes.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenreel.builder.encode import Advance, Encoder, Job
from tokenreel.builder.engines.carried import encode_or_fail, take
from tokenreel.builder.engines.local import pickled, worker_died
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import ConfigError, MissingExtraError, TokenreelError
from tokenreel.text.tokenizers.engine import ONE_THREAD

MAX_RETRIES = 3
CHUNKS_PER_CPU = 3
ANSWER_SECONDS = 5.0


def run_on_ray(
    job: Job, chunks: Iterable[Chunk], *, address: str, workers: int, advance: Advance
) -> Iterator[Summary]:
    """Encode chunks as Ray tasks; `address` is "local", "auto" or that of a cluster."""
    ray = _import_ray()
    with _connected(ray, address, workers):
        for summary in _run(ray, job, chunks):
            advance(summary.source_bytes)  # chunk by chunk: tasks say nothing before they end
            yield summary


@contextmanager
def _connected(ray: Any, address: str, workers: int) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {}
    if address == "local":
        own = {"num_cpus": workers, "include_dashboard": False}
    else:
        _refuse_silent(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"no Ray cluster lets us in: {error}",
            where=address,
            expected="a cluster of this version of Ray, and its token",
            remedy="give the token the cluster was started with (RAY_AUTH_TOKEN, or its file "
            'RAY_AUTH_TOKEN_PATH), or use the address "local"',
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_silent(address: str) -> None:
    """Raise ConfigError unless a server listens at the address, or at the one "auto" means."""
    import socket
    from urllib.parse import urlsplit

    # Which one that is, only Ray knows; and it never connects to localhost by that name.
    from ray._private.services import canonicalize_bootstrap_address

    wanted = address
    try:
        if "://" not in address:
            wanted = canonicalize_bootstrap_address(address) or address
        place = urlsplit(wanted if "://" in wanted else f"//{wanted}")
        if place.port is None:
            raise ValueError("there is no port in it")
        socket.create_connection((place.hostname, place.port), ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Ray cluster answers: {error}",
            where=address if wanted == address else f"{address} ({wanted})",
            expected='"local", "auto" or host:port of a running cluster',
            remedy='start one with "ray start --head", or use the address "local"',
        ) from error


def _run(ray: Any, job: Job, chunks: Iterable[Chunk]) -> Iterator[Summary]:
    limit = CHUNKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
    task = ray.remote(max_retries=MAX_RETRIES, num_cpus=1)(_encode)
    name, shared = os.urandom(16).hex(), ray.put(pickled(job))
    folder = str(Path.cwd())  # what a relative path of the job is relative to
    waiting: deque[tuple[int, Any]] = deque()
    try:
        for chunk in chunks:
            # In a list the reference travels as it is: only a worker that is new looks into it.
            waiting.append((chunk.number, task.remote(name, [shared], folder, chunk)))
            if len(waiting) >= limit:
                yield _result(ray, job, *waiting.popleft())
        while waiting:
            yield _result(ray, job, *waiting.popleft())
    finally:
        for _, reference in waiting:
            ray.cancel(reference, force=True)


_encoders: dict[str, Encoder] = {}


def _encode(name: str, shared: list[Any], folder: str, chunk: Chunk) -> Summary | TokenreelError:
    return encode_or_fail(lambda: _open_encoder(name, shared, folder), chunk)


def _open_encoder(name: str, shared: list[Any], folder: str) -> Encoder:
    """Return the encoder of a job: a Ray worker opens it (its tokenizer above all) only once."""
    if name not in _encoders:
        import ray

        os.environ.update(ONE_THREAD)
        os.chdir(folder)
        _encoders.clear()
        job = pickle.loads(ray.get(shared[0]))
        _encoders[name] = Encoder(job, trail_folder=job.spill_folder)
    return _encoders[name]


def _result(ray: Any, job: Job, number: int, reference: Any) -> Summary:
    try:
        return take(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from error
    except ray.exceptions.RayError as error:
        cause = f"{type(error).__name__} after {MAX_RETRIES} retries"
        raise worker_died(job.spill_folder, [f"*.{number:06d}.at"], cause=cause) from error


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", extra="ray", purpose="the Ray engine") from None
    return ray
