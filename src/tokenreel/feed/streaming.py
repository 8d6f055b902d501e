"""The loop behind `Feed.stream`: batches one after the other, made ahead, in the order that holds.

What is made ahead may be overtaken: by a change of weights, after which it is made again, and
by a loaded state, which ends the stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count, takewhile
from typing import TYPE_CHECKING

from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.batcher import Batcher
from tokenreel.feed.buffers import BatchMemory
from tokenreel.feed.parts import Part
from tokenreel.feed.prefetch import make_ahead
from tokenreel.feed.read_ahead import ReadAhead

if TYPE_CHECKING:
    from tokenreel.feed.feed import Feed


def stream_batches(
    feed: Feed,
    part: Part,
    prefetch: int,
    memories: Iterator[BatchMemory],
    step: int,
    num_loads: int,
    extra: Sequence[str],
) -> Iterator[Batch]:
    """Yield a rank's batches from a step on, and count the feed's steps.

    `num_loads`: how many states the feed had loaded when the stream was begun.
    """
    threads = feed._threads if prefetch == 0 else 1  # else each makes a batch
    read_ahead = ReadAhead(lambda step: feed._batcher.announce(step, part))

    def make(job: tuple[int, BatchMemory]) -> tuple[Batcher, BatchMemory, Batch]:
        (step, memory), batcher = job, feed._batcher
        read_ahead.before(step)
        batch = batcher.make(step, part, memory, threads=threads, extra=extra)
        read_ahead.after(step)
        return batcher, memory, batch

    # A change of weights may put the end off behind what was looked at ahead: then go on.
    while feed._is_within(step):
        jobs = zip(takewhile(feed._is_within, count(step)), memories, strict=False)
        with closing(make_ahead(make, jobs, depth=prefetch, threads=feed._threads)) as made:
            for batcher, memory, batch in made:
                if num_loads != feed._num_loads:
                    raise ConfigError(
                        "a state was loaded while the feed was streamed",
                        remedy="begin another stream: it starts at the step of the state",
                    )
                # A batch made ahead of a change of weights is of an order that is gone.
                if batcher is not feed._batcher:
                    if not feed._is_within(batch.step):
                        break
                    batch = make((batch.step, memory))[2]
                feed._step = step = batch.step + 1
                yield batch
                # Else this loop would hold a batch that its consumer has dropped.
                del batch, memory
    ending = feed.ending
    if ending is not None and any(ending.unshown.values()) and feed.step == ending.steps:
        warnings.warn(str(ending), stacklevel=2)
