"""A stream that has been opened, and its batches, one after the other: what Grain wraps.

`Batches` owns the state: a step, and where each lane is after that step. Each lane gives
A · B / num_lanes rows of a step and stands in its own columns of the batch, so that the batches
of ranks, side by side, are the batch of one. A step that fails leaves the state as it was: asked
again the stream makes the same step again.

A rank makes its own lanes. Where the stream ends (repeat off, or evaluation) it makes all lanes
and gives out its own columns, so that all ranks end at the same step without a word between
them: reading and encoding are then done by every rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tokenreel.canonical import digest
from tokenreel.display import named, never_raising
from tokenreel.errors import ConfigError, InputError, MissingExtraError
from tokenreel.rows.packing import VERSION as PACKING_VERSION
from tokenreel.stream.arrivals import DEAL_VERSION, Arrivals, CountedBackoff, Deal, open_text
from tokenreel.stream.encoded_documents import Encoder
from tokenreel.stream.lane import ARRAYS, Lane, Packer, WriteThrough
from tokenreel.stream.model_vocabulary import check_end_is_told_apart, open_vocabulary
from tokenreel.stream.packers import BinPacker, Masking, WindowPacker
from tokenreel.stream.stream_settings import StreamConfig, deciding
from tokenreel.stream.stream_state import (
    LaneState,
    StreamState,
    as_dropped,
    counts_of,
    read_state,
    write_state,
)
from tokenreel.text.sources import TextSource
from tokenreel.text.sources.shuffle import VERSION as SHUFFLE_VERSION
from tokenreel.text.tokenizers import Tokenizer

VERSION = 2
GROUP_CHARACTERS = 1 << 19  # what windows wait for: the latency of a step
FIELDS = ("input_ids", "labels", "attention_mask", "segment_ids", "position_ids")


class OpenedStream:
    """A configuration with its source and tokenizer, for one split and one rank.

    `source` and `tokenizer`, where given, take the place of those the configuration names.
    `group_characters` are encoded at once (sequential); it changes no batch.
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        split: str = "train",
        rank: int = 0,
        world_size: int = 1,
        source: TextSource | None = None,
        tokenizer: Tokenizer | None = None,
        group_characters: int = GROUP_CHARACTERS,
    ) -> None:
        config = config.for_split(split)
        self.split, self.rank, self.world_size = split, rank, world_size
        self._group_characters = group_characters
        _check_ranks(config, rank, world_size)
        data = config.data
        self.backoff = CountedBackoff(
            max_retries=data.max_retries, retry_delay=data.retry_delay_sec
        )
        self.vocabulary = open_vocabulary(data.tokenizer, config.model, tokenizer=tokenizer)
        if not data.train_on_eos:
            check_end_is_told_apart(self.vocabulary, data.tokenizer)
        self.config = replace(config, model=self.vocabulary.as_settings())
        self.source = source or open_text(data, self.backoff)
        self.masking = Masking(
            seq_len=self.config.train.seq_len,
            pad_id=self.vocabulary.pad_id,
            ignored_id=None if data.train_on_eos else self.vocabulary.eos_id,
            mask_borders=data.mask_boundary_loss,
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the batches depend on, flat, ready for JSON: inputs by content, not by path."""
        return {
            **self._documents,
            **deciding(self.config.data, "rows"),
            **deciding(self.config.train, "rows"),
            "eos_id": self.vocabulary.eos_id,
            "pad_id": self.vocabulary.pad_id,
            "packing_version": PACKING_VERSION,
        }

    @cached_property
    def _documents(self) -> dict[str, Any]:
        """What the documents and their order depend on."""
        vocabulary, tokenizer = self.vocabulary, self.config.data.tokenizer
        return {
            **deciding(self.config.data, "documents"),
            **deciding(tokenizer, "documents"),
            "split": self.split,
            "source": self.source.fingerprint(),
            "tokenizer": vocabulary.tokenizer.fingerprint,
            "begin_id": vocabulary.bos_id if tokenizer.add_bos else None,
            "end_id": vocabulary.eos_id if tokenizer.add_eos else None,
            "stream_version": VERSION,
            "deal_version": DEAL_VERSION,
            "shuffle_version": SHUFFLE_VERSION,
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over `identity`."""
        return digest(self.identity)

    @property
    def lane_numbers(self) -> range:
        """The lanes that this rank makes."""
        lanes = range(self.config.data.num_lanes)
        return lanes[self._share(len(lanes))] if self.config.data.repeat else lanes

    @property
    def columns(self) -> slice:
        """What this rank gives out of the columns that it makes."""
        return slice(None) if self.config.data.repeat else self._share(self.config.train.batch_size)

    def _share(self, count: int) -> slice:
        size = count // self.world_size
        return slice(self.rank * size, (self.rank + 1) * size)

    def write(self, state: StreamState) -> dict[str, Any]:
        """Return a state of this stream, ready for JSON."""
        return write_state(state, self.identity, self.fingerprint)

    def read(self, state: Mapping[str, Any]) -> StreamState:
        """Return the state that `write` described; one of another stream raises."""
        lanes, vocab_size = self.lane_numbers, self.vocabulary.size
        return read_state(state, self.identity, lanes=lanes, vocab_size=vocab_size)

    def lane(self, number: int, state: LaneState) -> Lane:
        """Return a lane, from a state on."""
        data, cache = self.config.data, self.config.stream
        deal = Deal(
            lane=number,
            num_lanes=data.num_lanes,
            held_out=data.eval_fraction,
            wants_held_out=self.split == "eval",
            seed=data.seed,
        )
        store = None
        if cache.cache_to is not None:
            tokenizer = self.vocabulary.tokenizer
            store = WriteThrough(cache, tokenizer, self._documents, safe=state.safe)
        return Lane(
            state,
            Arrivals(self.source, deal, data),
            Encoder(self.vocabulary, data.tokenizer),
            self._packer(),
            store=store,
            groups_ahead=min(data.grain_prefetch, 1),
        )

    def _packer(self) -> Packer:
        data = self.config.data
        if data.packing_mode == "bin":
            return BinPacker(
                self.masking,
                block_docs=data.packing_buffer_docs,
                max_docs_per_row=data.packing_max_docs_per_bin,
            )
        return WindowPacker(self.masking, end=data.end, max_characters=self._group_characters)


def _check_ranks(config: StreamConfig, rank: int, world_size: int) -> None:
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError("bad rank", expected=f"0 to {world_size - 1}", actual=rank)
    if config.data.repeat and config.data.num_lanes % world_size:
        raise ConfigError(
            "the ranks do not divide the lanes",
            expected=f"data.num_lanes as a multiple of {world_size}",
            actual=config.data.num_lanes,
            remedy="fix data.num_lanes at a number that every number of ranks divides",
        )
    if config.train.batch_size % world_size:
        raise ConfigError(
            "the ranks do not divide the batch",
            expected=f"train.batch_size as a multiple of {world_size}",
            actual=config.train.batch_size,
        )
    if world_size > 1 and config.stream.cache_to is not None:
        raise ConfigError(
            "a store is written by one rank",
            expected="one rank with stream.cache_to",
            actual=world_size,
            remedy='build the store first ("tokenreel build") and train with Feed',
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A rank's rows of one step, all int32 [A, B, T].

    labels: shifted, -100 where ignored; segment_ids: from 1 in each row, 0 is padding;
    position_ids: from 0 in each segment.
    """

    step: int
    input_ids: np.ndarray
    labels: np.ndarray
    segment_ids: np.ndarray
    position_ids: np.ndarray

    @property
    def attention_mask(self) -> np.ndarray:
        """bool: where there is a token."""
        return self.segment_ids > 0

    @never_raising
    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.input_ids.shape[:-1]))
        padding = int((self.segment_ids == 0).sum())
        trained = int((self.labels >= 0).sum())
        facts = [f"step {self.step:,}", f"{shape} rows of {self.input_ids.shape[-1]:,} tokens"]
        masked = self.input_ids.size - padding - trained
        counts = [f"{trained:,} trained", f"{masked:,} masked", f"{padding:,} padding"]
        return named("Batch", [*facts, *counts])

    def on_device(self) -> Batch:
        """Return the batch with JAX arrays on the default device, as data.device_put asks for."""
        return replace(self, **_put({name: getattr(self, name) for name in ARRAYS}))

    def to_jax(self) -> dict[str, Any]:
        """Return the arrays as JAX arrays on the default device, by name."""
        return _put({name: getattr(self, name) for name in FIELDS})

    def to_torch(self) -> dict[str, Any]:
        """Return the arrays as torch tensors, by name; ids and labels int64, as torch asks."""
        try:
            import torch
        except ImportError:
            raise MissingExtraError("torch", extra="torch", purpose="a batch for torch") from None
        wide = {name: getattr(self, name).astype(np.int64) for name in ("input_ids", "labels")}
        return {
            name: torch.from_numpy(wide[name] if name in wide else getattr(self, name))
            for name in FIELDS
        }


def _put(arrays: dict[str, Any]) -> dict[str, Any]:
    try:
        import jax
    except ImportError:
        raise MissingExtraError("jax", extra="jax", purpose="a batch for JAX") from None
    put: dict[str, Any] = jax.device_put(arrays)
    return put


class Batches(Iterator[Batch]):
    """Iterate over the batches of one rank; `state` is where the stream is after the last."""

    def __init__(self, stream: OpenedStream) -> None:
        self.stream = stream
        self._lanes: dict[int, Lane] = {}
        self.rewind(StreamState(step=0, lanes={n: LaneState() for n in stream.lane_numbers}))

    def rewind(self, state: StreamState) -> None:
        """Go on where a state says; nothing is read until the next batch is asked for."""
        Batches.close(self)  # a subclass may close for good
        self._lanes = {n: self.stream.lane(n, state.lanes[n]) for n in self.stream.lane_numbers}
        self._reach(state.step)

    def _reach(self, step: int) -> None:
        lanes = {number: lane.state for number, lane in self._lanes.items()}
        self.state = StreamState(step=step, lanes=lanes)

    def __next__(self) -> Batch:
        step = self.state.step
        try:
            columns = self._take()
        except BaseException:  # also Ctrl-C: what was taken for this step is taken again
            self.rewind(self.state)
            raise
        self._reach(step + (columns is not None))
        if columns is None:
            raise StopIteration
        made, own = _joined(columns, axis=1), self.stream.columns
        arrays = {name: np.ascontiguousarray(made[name][:, own]) for name in ARRAYS}
        return Batch(step=step, **arrays)

    def _take(self) -> list[dict[str, np.ndarray]] | None:
        """Return the columns of each lane, or None at the end."""
        train, data = self.stream.config.train, self.stream.config.data
        wide = train.batch_size // data.num_lanes
        wanted = train.grad_accum * wide
        columns, found = [], []
        for lane in self._lanes.values():
            columns.append(lane.take(wanted))
            found.append(sum(len(rows["input_ids"]) for rows in columns[-1]))
        if not any(found) or (data.end == "drop" and min(found) < wanted):
            if self.state.step == 0:
                raise _nothing(self.stream, found=sum(found))
            self._drop()
            return None
        for lane, parts, num_rows in zip(self._lanes.values(), columns, found, strict=True):
            self._pad(lane, parts, wanted - num_rows)
        shape = (train.grad_accum, wide, train.seq_len)
        return [
            {name: rows.reshape(shape) for name, rows in _joined(parts, axis=0).items()}
            for parts in columns
        ]

    def _drop(self) -> None:
        """Count as dropped what the lanes gave for a step that is not made."""
        for number, lane in self._lanes.items():
            given = lane.state.counts - self.state.lanes[number].counts
            lane.count(as_dropped(given) - given)

    def _pad(self, lane: Lane, parts: list[dict[str, np.ndarray]], missing: int) -> None:
        if missing:
            parts.append(self.stream.masking.padding(missing))
            slots = missing * (self.stream.masking.seq_len + 1)
            lane.count(counts_of(1, rows=missing, padding=slots)[0])

    def get_state(self) -> dict[str, Any]:
        """Return where the stream is, ready for JSON."""
        return self.stream.write(self.state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says; a state of something else raises, and changes nothing."""
        self.rewind(self.stream.read(state))

    def close(self) -> None:
        """Let go of what is open; `set_state` opens it again."""
        for lane in self._lanes.values():
            lane.close()


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
    # Rows are copied even if they lie together: a batch must not keep a whole group in memory.
    return {name: np.concatenate([part[name] for part in parts], axis=axis) for name in ARRAYS}
