"""The public face of streaming: from a configuration to batches, resumable to the token.

What it costs, on one core: a few per cent of the reference tokenizer's own time; with the
fast engine some 70 MB of text a second, of which reading takes a fifth and encoding under
half. A state holds what the packer holds: at the defaults some 200 KB of JSON, made in 20 ms
when it is asked for; a document is held whole, one of 1 MB as about 1 MB. Going on from it
reads and encodes nothing again; with shuffling, at most a shuffle block is read again. The
first batch waits for one shuffle block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tokenreel.display import named, never_raising
from tokenreel.errors import MissingExtraError
from tokenreel.stream.stream_batches import Batch, OpenedStream
from tokenreel.stream.stream_config import Configured, read_config
from tokenreel.stream.stream_state import account
from tokenreel.text.sources import TextSource
from tokenreel.text.tokenizers import Tokenizer


class StreamPipeline(Iterator[Batch]):
    """Iterate over batches [A, B, T] of text as it arrives.

    `config`: a StreamConfig, a nested mapping with the same keys, or a TOML, YAML or XML file.
    `split` "eval" reads what training does not. A rank gets B / world_size of a step's rows; of a
    stream that ends (evaluation, repeat off) every rank encodes all, and all end together.
    `source` and `tokenizer` are objects in place of those that the configuration names.

    >>> pipeline = StreamPipeline({
    ...     "data": {"backend": "local_text", "local_text": "so it goes. " * 9,
    ...              "tokenizer": {"kind": "byte", "add_eos": True}},
    ...     "train": {"seq_len": 16, "batch_size": 2}})
    >>> next(pipeline).input_ids.shape
    (1, 2, 16)
    >>> state = pipeline.get_state()
    >>> batch = next(pipeline)
    >>> pipeline.set_state(state)
    >>> bool((next(pipeline).labels == batch.labels).all())
    True
    """

    def __init__(
        self,
        config: Configured,
        *,
        split: str = "train",
        rank: int = 0,
        world_size: int = 1,
        overrides: Sequence[str] = (),
        source: TextSource | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        opened = OpenedStream(
            read_config(config, overrides=overrides),
            split=split,
            rank=rank,
            world_size=world_size,
            source=source,
            tokenizer=tokenizer,
        )
        self.config = opened.config
        self.tokenizer = opened.vocabulary.tokenizer
        self.vocab_size = opened.vocabulary.size
        self.bos_id = opened.vocabulary.bos_id
        self.eos_id = opened.vocabulary.eos_id
        self.pad_id = opened.vocabulary.pad_id
        self.fingerprint = opened.fingerprint
        self._part = f"split {split!r}, rank {rank} of {world_size}"
        self._backoff = opened.backoff
        self._iterator = _on_grain(opened)
        self._segment_ids: np.ndarray | None = None  # of the last batch

    def __next__(self) -> Batch:
        batch: Batch = next(self._iterator)
        self._segment_ids = batch.segment_ids
        return batch

    def get_state(self) -> dict[str, Any]:
        """Return where the stream is after the last batch, ready for JSON: some 200 KB."""
        state: dict[str, Any] = self._iterator.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where a state says; a state of another stream raises MismatchError."""
        self._iterator.set_state(state)
        self._segment_ids = None

    def stats(self) -> dict[str, float]:
        """Return the account of the batches so far (stream_state.py), and this process's retries.

        It is of this rank's lanes, or of all where every rank makes all.
        """
        lanes = self._iterator.state.lanes.values()
        counts = np.sum([lane.counts for lane in lanes], axis=0)
        told = account(counts, seq_len=self.config.train.seq_len)
        return {**told, "retries": len(self._backoff.waits)}

    def get_stats(self) -> dict[str, float | str]:
        """Return how full the last batch is, and the documents so far.

        These are the names of contract 004's original; `stats` is the whole account. Before a
        batch, and after `set_state`, there is the packing mode alone.
        """
        mode = self.config.data.packing_mode
        if self._segment_ids is None:
            return {"packing_mode": mode}
        used, capacity = int((self._segment_ids > 0).sum()), self._segment_ids.size
        told = self.stats()
        return {
            "packing_mode": mode,
            "packing_tokens": used,
            "packing_capacity": capacity,
            "packing_utilization": used / capacity,
            "docs_seen": told["documents"],
            "docs_truncated": told["truncated_documents"],
        }

    @never_raising
    def __repr__(self) -> str:
        data, train = self.config.data, self.config.train
        facts = [
            f"{data.backend}, {self._part}",
            f"{train.grad_accum} x {train.batch_size} rows of {train.seq_len:,} tokens",
            f"packing {data.packing_mode!r}",
            f"vocabulary of {self.vocab_size:,}",
            f"eos {self.eos_id}, pad {self.pad_id}",
        ]
        return named("StreamPipeline", facts)

    def close(self) -> None:
        """Stop Grain's thread and let go of what is open."""
        self._iterator.close()

    def __enter__(self) -> StreamPipeline:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def make_grain_iterator(
    config: Configured,
    *,
    split: str = "train",
    rank: int = 0,
    world_size: int = 1,
    overrides: Sequence[str] = (),
) -> Any:
    """Return the Grain iterator itself (a grain.DatasetIterator) that gives the same batches."""
    made = read_config(config, overrides=overrides)
    return _on_grain(OpenedStream(made, split=split, rank=rank, world_size=world_size))


def _on_grain(stream: OpenedStream) -> Any:
    try:
        from tokenreel.stream.on_grain import grain_iterator
    except ImportError as error:
        if error.name != "grain":
            raise
        raise MissingExtraError("grain", extra="jax", purpose="streaming") from None
    return grain_iterator(stream)
