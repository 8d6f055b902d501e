"""The stream as a Grain dataset; importing this module imports grain.

    BatchesDataset ─► ThreadPrefetchIterDataset (data.grain_prefetch) ─► StreamDataset
    its states are                                                       its states are JSON
    StreamStates

The state of the iterator is the stream's own: that of the last batch handed over, whatever
Grain has made ahead. Grain asks for a state with every batch: a StreamState is there already,
and only the one that a checkpoint asks for is written as JSON.
"""

from __future__ import annotations

import atexit
from typing import Any
from weakref import ref

import grain  # type: ignore[import-untyped]

from tokenreel.stream.stream_batches import Batch, Batches, OpenedStream
from tokenreel.stream.stream_state import StreamState


class BatchesDataset(grain.IterDataset):
    """Batches of an opened stream; each iterator begins at the start."""

    def __init__(self, stream: OpenedStream) -> None:
        super().__init__()
        self._stream = stream

    def __iter__(self) -> GrainBatches:
        return GrainBatches(self._stream)

    def __str__(self) -> str:
        return f"BatchesDataset({self._stream.source.name!r})"


class GrainBatches(Batches, grain.DatasetIterator):
    """The batches themselves, as Grain makes them ahead: a state is a StreamState."""

    def __init__(self, stream: OpenedStream) -> None:
        grain.DatasetIterator.__init__(self)
        Batches.__init__(self, stream)

    def get_state(self) -> StreamState:  # type: ignore[override]
        """Return where the stream is."""
        return self.state

    def set_state(self, state: StreamState) -> None:  # type: ignore[override]
        """Go on where a state says."""
        self.rewind(state)

    def close(self) -> None:
        """Let go of what is open, for good."""
        if not self._closed:
            Batches.close(self)
        grain.DatasetIterator.close(self)


class StreamDataset(grain.IterDataset):
    """Batches of an opened stream, made ahead where that is asked for."""

    def __init__(self, stream: OpenedStream) -> None:
        made: Any = BatchesDataset(stream)
        ahead = stream.config.data.grain_prefetch
        if ahead:
            made = grain.experimental.ThreadPrefetchIterDataset(made, prefetch_buffer_size=ahead)
        super().__init__(made)
        self._stream = stream

    def __iter__(self) -> StreamIterator:
        return StreamIterator(iter(self._parent), self._stream)

    def __str__(self) -> str:
        return f"StreamDataset({self._stream.source.name!r})"


class StreamIterator(grain.DatasetIterator):
    """Hand over batches, on the device where data.device_put says so; states are JSON."""

    def __init__(self, made: Any, stream: OpenedStream) -> None:
        super().__init__(made)
        self._stream = stream

    def __next__(self) -> Batch:
        self._assert_not_closed()
        batch: Batch = next(self._parent)
        return batch.on_device() if self._stream.config.data.device_put else batch

    @property
    def state(self) -> StreamState:
        """Where the stream is after the last batch handed over."""
        state: StreamState = self._parent.get_state()
        return state

    def get_state(self) -> dict[str, Any]:
        """Return where the stream is, ready for JSON."""
        return self._stream.write(self.state)

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where a state says."""
        self._parent.set_state(self._stream.read(state))


def grain_iterator(stream: OpenedStream) -> StreamIterator:
    """Return the Grain iterator of a stream."""
    iterator = iter(StreamDataset(stream))
    atexit.register(_close_for_good, ref(iterator))
    return iterator


def _close_for_good(iterator: ref[Any]) -> None:
    """Close an iterator that lives until the program ends, and those that it reads from.

    Grain closes once more when the object goes, and then finds its modules gone: an error on
    the screen after every good run.
    """
    alive = iterator()
    while alive is not None:
        alive.close()
        alive.close = lambda: None
        alive = next(iter(alive._parents), None)
