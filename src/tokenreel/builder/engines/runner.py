"""Who encodes the chunks of a build: this process, processes of this machine, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Self

from tokenreel.builder.encode import Advance, Job
from tokenreel.builder.engines.local import Workers, no_main_guard, run_here
from tokenreel.builder.engines.ray import run_on_ray
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.text.tokenizers import Tokenizer


class Runner:
    """The engine of one build; worker processes are started with it."""

    def __init__(self, engine: str, *, workers: int, address: str, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._num_workers = workers
        self._address = address
        is_many = engine == "local" and workers > 1
        self._workers = Workers(tokenizer, workers) if is_many else None

    def run(
        self, job: Job, chunks: Iterator[Chunk], *, advance: Advance
    ) -> Generator[Summary, None, None]:
        """Yield the summary of each chunk, in order, as soon as it is encoded."""
        if self._engine == "ray":
            yield from run_on_ray(
                job, chunks, address=self._address, workers=self._num_workers, advance=advance
            )
        elif self._workers is None:
            yield from run_here(job, chunks, advance=advance)
        else:
            yield from self._workers.run(job, chunks, advance=advance)

    def stop(self, error: BaseException) -> None:
        """End the workers; one that runs the script again may be the cause of a missing file."""
        if self._workers is not None:
            if FileNotFoundError in (type(error), type(error.__cause__)):
                self._workers.wait_for_main()
            self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._workers is None:
            return
        if error is None:
            self._workers.close()
        else:
            self.stop(error)
        if isinstance(error, Exception) and self._workers.has_started_main:
            # Whatever the error says: a script that runs a second time may have removed the folder.
            raise no_main_guard() from None
