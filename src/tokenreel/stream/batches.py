"""Batches of a stream, one after the other, without Grain: what Grain wraps.

Each lane gives A · B / num_lanes rows of a step and stands in its own columns of the batch, so
that the batches of ranks, side by side, are the batch of one. Where the stream ends, every
rank makes all columns and gives out its own. A step that fails leaves the stream where it
was: asked again it tries again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tokenreel.errors import InputError
from tokenreel.stream.batch import Batch
from tokenreel.stream.lane import Lane
from tokenreel.stream.ledger import account, counts_of, from_named
from tokenreel.stream.opened import OpenedStream
from tokenreel.stream.rows import FIELDS
from tokenreel.stream.state import StreamState, read_state, write_state


class Batches(Iterator[Batch]):
    """Iterate over the batches of one rank."""

    def __init__(self, stream: OpenedStream) -> None:
        self.stream = stream
        self.step = 0
        self._lanes = stream.lanes()

    def __next__(self) -> Batch:
        before = self.snapshot()
        try:
            columns = self._take()
        except BaseException:  # also Ctrl-C: what was taken for this step is taken again
            self.rewind(before)
            raise
        if columns is None:
            raise StopIteration
        self.step += 1
        made, own = _joined(columns, axis=1), self.stream.columns
        arrays = {name: np.ascontiguousarray(made[name][:, own]) for name in FIELDS}
        return Batch(step=self.step - 1, **arrays)

    def _take(self) -> list[dict[str, np.ndarray]] | None:
        """Return the columns of each lane, or None at the end."""
        train, data = self.stream.config.train, self.stream.config.data
        wide = train.batch_size // data.num_lanes
        wanted = train.grad_accum * wide
        counts = {number: lane.counts for number, lane in self._lanes.items()}
        taken = {number: lane.take(wanted) for number, lane in self._lanes.items()}
        found = {number: sum(map(_num_rows, parts)) for number, parts in taken.items()}
        is_short = data.end == "drop" and min(found.values()) < wanted
        if is_short or not any(found.values()):
            if self.step == 0:
                raise _nothing(self.stream, found=sum(found.values()))
            for number, lane in self._lanes.items():
                lane.drop_since(counts[number])
            return None
        for number, lane in self._lanes.items():
            self._pad(lane, taken[number], wanted - found[number])
        shape = (train.grad_accum, wide, train.seq_len)
        return [
            {name: rows.reshape(shape) for name, rows in _joined(parts, axis=0).items()}
            for parts in taken.values()
        ]

    def _pad(self, lane: Lane, parts: list[dict[str, np.ndarray]], missing: int) -> None:
        if missing:
            parts.append(self.stream.masking.padding(missing))
            slots = missing * (self.stream.masking.seq_len + 1)
            lane.add(counts_of(1, rows=missing, padding=slots)[0])

    def snapshot(self) -> StreamState:
        """Return where the stream is, at no cost."""
        lanes = {number: lane.state() for number, lane in self._lanes.items()}
        return StreamState(step=self.step, lanes=lanes)

    def rewind(self, state: StreamState) -> None:
        """Go on where a snapshot says."""
        for number, lane in self._lanes.items():
            lane.restore(state.lanes[number])
        self.step = state.step

    def get_state(self) -> dict[str, Any]:
        """Return where the stream is, ready for JSON."""
        return saved(self.stream, self.snapshot())

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says; a state of something else raises, and changes nothing."""
        self.rewind(loaded(self.stream, state))

    def close(self) -> None:
        """Let go of what is open."""
        for lane in self._lanes.values():
            lane.close()


def saved(stream: OpenedStream, state: StreamState) -> dict[str, Any]:
    """Return a snapshot of a stream, ready for JSON."""
    return write_state(state, stream.identity, stream.fingerprint)


def loaded(stream: OpenedStream, state: Mapping[str, Any]) -> StreamState:
    """Return the snapshot that `saved` described; one of another stream raises."""
    return read_state(
        state, stream.identity, lanes=stream.lane_numbers, vocab_size=stream.vocabulary.size
    )


def stats_of(state: Mapping[str, Any], *, seq_len: int) -> dict[str, float]:
    """Return the account of a state, over all its lanes."""
    counts = sum(from_named(lane["counts"]) for lane in state["lanes"].values())
    return account(np.asarray(counts), seq_len=seq_len)


def _nothing(stream: OpenedStream, *, found: int) -> InputError:
    return InputError(
        "the stream ends before its first batch",
        where=stream.source.name,
        expected="documents of >= 2 tokens, with targets that are not masked",
        actual=f"{found:,} rows",
        remedy='look at the documents; with fewer rows than a batch has, set data.end = "pad"',
    )


def _joined(parts: list[dict[str, np.ndarray]], *, axis: int) -> dict[str, np.ndarray]:
    if axis and len(parts) == 1:
        return parts[0]
    # Rows are copied even if they lie together: a batch must not keep a whole chunk in memory.
    return {name: np.concatenate([part[name] for part in parts], axis=axis) for name in FIELDS}


def _num_rows(part: dict[str, np.ndarray]) -> int:
    return len(part["input_ids"])
