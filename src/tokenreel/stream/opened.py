"""A stream that has been opened: its source, its vocabulary, and what its batches depend on."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from tokenreel.canonical import digest
from tokenreel.errors import ConfigError
from tokenreel.rows.packing import VERSION as PACKING_VERSION
from tokenreel.stream.arrivals import Arrivals
from tokenreel.stream.bins import BinPacker
from tokenreel.stream.cache import Cache
from tokenreel.stream.config import StreamConfig
from tokenreel.stream.deal import VERSION as DEAL_VERSION
from tokenreel.stream.deal import Deal
from tokenreel.stream.encoder import Encoder
from tokenreel.stream.lane import Lane, Packer
from tokenreel.stream.rows import Masking
from tokenreel.stream.source import CountedBackoff, for_split, open_text
from tokenreel.stream.told import told_in_keys
from tokenreel.stream.vocabulary import check_end_is_told_apart, open_vocabulary
from tokenreel.stream.windows import WindowPacker
from tokenreel.text.sources import TextSource
from tokenreel.text.sources.shuffle import VERSION as SHUFFLE_VERSION
from tokenreel.text.tokenizers import Tokenizer

VERSION = 2
CHUNK_CHARACTERS = 1 << 19  # what windows wait for: the latency of a step
# Settings that decide which documents come in which order, and those that make rows of them.
ORDERING = ("shuffle", "shuffle_buffer_size", "seed", "eval_fraction", "num_lanes")
PACKING = (
    "repeat",
    "end",
    "packing_mode",
    "packing_buffer_docs",
    "packing_max_docs_per_bin",
    "mask_boundary_loss",
    "train_on_eos",
)


class OpenedStream:
    """A configuration with its source and tokenizer, for one split and one rank.

    `source` and `tokenizer`, where given, take the place of those the configuration names.
    `chunk_characters` are encoded at once (sequential); it changes no batch.

    A rank makes its own lanes. Where the stream ends (repeat off, or evaluation) it makes all
    lanes and gives out its own columns, so that all ranks end at the same step without a word
    between them: reading and encoding are then done by every rank.
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
        chunk_characters: int = CHUNK_CHARACTERS,
    ) -> None:
        config = for_split(config, split)
        self.split, self.rank, self.world_size = split, rank, world_size
        self._chunk_characters = chunk_characters
        _check_ranks(config, rank, world_size)
        data = config.data
        self.backoff = CountedBackoff(
            max_retries=data.max_retries, retry_delay=data.retry_delay_sec
        )
        self.vocabulary = open_vocabulary(data.tokenizer, config.model, tokenizer=tokenizer)
        if not data.train_on_eos:
            check_end_is_told_apart(self.vocabulary, data.tokenizer)
        self.config = replace(config, model=self.vocabulary.as_settings())
        with told_in_keys():
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
        data = asdict(self.config.data)
        vocabulary = self.vocabulary
        return {
            **self._documents,
            **{name: data[name] for name in PACKING},
            **asdict(self.config.train),
            "eos_id": vocabulary.eos_id,
            "pad_id": vocabulary.pad_id,
            "packing_version": PACKING_VERSION,
        }

    @cached_property
    def _documents(self) -> dict[str, Any]:
        """What the documents and their order depend on."""
        data, vocabulary = asdict(self.config.data), self.vocabulary
        tokenizer = data["tokenizer"]
        return {
            **{name: data[name] for name in ORDERING},
            "split": self.split,
            "source": self.source.fingerprint(),
            "tokenizer": vocabulary.tokenizer.fingerprint,
            "begin_id": vocabulary.bos_id if tokenizer["add_bos"] else None,
            "end_id": vocabulary.eos_id if tokenizer["add_eos"] else None,
            "max_doc_tokens": tokenizer["max_doc_tokens"],
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
        return (
            lanes[_share(lanes, self.rank, self.world_size)] if self.config.data.repeat else lanes
        )

    @property
    def columns(self) -> slice:
        """What this rank gives out of the columns that it makes."""
        if self.config.data.repeat:
            return slice(None)
        return _share(range(self.config.train.batch_size), self.rank, self.world_size)

    def lanes(self) -> dict[int, Lane]:
        """Return the lanes that this rank makes, at their start, by number."""
        return {number: self._lane(number) for number in self.lane_numbers}

    def _lane(self, number: int) -> Lane:
        config = self.config
        deal = Deal(
            lane=number,
            num_lanes=config.data.num_lanes,
            held_out=config.data.eval_fraction,
            wants_held_out=self.split == "eval",
            seed=config.data.seed,
        )
        cache = None
        if config.stream.cache_to is not None:
            cache = Cache(config.stream, self.vocabulary.tokenizer, self._documents)
        arrivals = Arrivals(self.source, deal, config.data)
        return Lane(
            arrivals,
            Encoder(self.vocabulary, config.data.tokenizer),
            self._packer(),
            cache=cache,
            chunks_ahead=min(config.data.grain_prefetch, 1),
        )

    def _packer(self) -> Packer:
        data = self.config.data
        if data.packing_mode == "bin":
            return BinPacker(
                self.masking,
                block_docs=data.packing_buffer_docs,
                max_docs_per_row=data.packing_max_docs_per_bin,
            )
        return WindowPacker(self.masking, end=data.end, max_characters=self._chunk_characters)


def _share(items: range, rank: int, world_size: int) -> slice:
    size = len(items) // world_size
    return slice(rank * size, (rank + 1) * size)


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
