"""The stream as a Grain dataset; importing this module imports grain.

    StreamDataset ─► ThreadPrefetchIterDataset (data.grain_prefetch) ─► DatasetIterator

The state of the iterator is the stream's own: that of the last batch handed over, whatever
Grain has made ahead.
"""

from __future__ import annotations

import atexit
from typing import Any
from weakref import ref

import grain  # type: ignore[import-untyped]

from tokenreel.stream.batch import Batch
from tokenreel.stream.batches import Batches
from tokenreel.stream.opened import OpenedStream


class StreamDataset(grain.IterDataset):
    """Batches of an opened stream; each iterator begins at the start."""

    def __init__(self, stream: OpenedStream) -> None:
        super().__init__()
        self._stream = stream

    def __iter__(self) -> StreamIterator:
        return StreamIterator(Batches(self._stream))

    def __str__(self) -> str:
        return f"StreamDataset({self._stream.source.name!r})"


class StreamIterator(grain.DatasetIterator):
    """Hand over batches, and wind to a state."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self._batches = batches

    def __next__(self) -> Batch:
        self._assert_not_closed()
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """Return where the stream is."""
        return self._batches.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where a state says."""
        self._batches.set_state(state)

    def close(self) -> None:
        """Let go of what is open."""
        if not self._closed:
            self._batches.close()
        super().close()


def grain_iterator(stream: OpenedStream) -> Any:
    """Return the Grain iterator of a stream, with Grain's prefetch where it is asked for."""
    dataset: Any = StreamDataset(stream)
    ahead = stream.config.data.grain_prefetch
    if ahead:
        dataset = grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=ahead)
    iterator = iter(dataset)
    atexit.register(_close_for_good, ref(iterator))
    return iterator


def _close_for_good(iterator: ref[Any]) -> None:
    """Close an iterator that lives until the program ends.

    Grain closes once more when the object goes, and then finds its modules gone: an error on
    the screen after every good run.
    """
    alive = iterator()
    if alive is not None:
        alive.close()
        alive.close = lambda: None
