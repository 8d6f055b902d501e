"""A stream that has been opened: its source, its vocabulary, and what its batches depend on."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.rows.packing import VERSION as PACKING_VERSION
from tokenreel.store.canonical import digest
from tokenreel.stream.arrivals import Arrivals
from tokenreel.stream.bins import BinPacker
from tokenreel.stream.cache import Cache
from tokenreel.stream.config import StreamConfig
from tokenreel.stream.dealt import VERSION as DEAL_VERSION
from tokenreel.stream.dealt import Deal
from tokenreel.stream.encode import Encoder
from tokenreel.stream.lane import Lane, Packer
from tokenreel.stream.rows import Masking
from tokenreel.stream.source import CountedBackoff, for_split, open_text
from tokenreel.stream.vocabulary import open_vocabulary
from tokenreel.stream.windows import WindowPacker
from tokenreel.text.sources import TextSource
from tokenreel.text.sources.shuffle import VERSION as SHUFFLE_VERSION
from tokenreel.text.tokenizers import Tokenizer

VERSION = 1
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
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        split: str = "train",
        rank: int = 0,
        world: int = 1,
        source: TextSource | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.config = for_split(config, split)
        self.split, self.rank, self.world = split, rank, world
        _check_ranks(self.config, rank, world)
        data = self.config.data
        self.backoff = CountedBackoff(
            max_retries=data.max_retries, retry_delay=data.retry_delay_sec
        )
        self.vocabulary = open_vocabulary(data.tokenizer, self.config.model, tokenizer=tokenizer)
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
        """The lanes of this rank."""
        share = self.config.data.num_lanes // self.world
        return range(self.rank * share, (self.rank + 1) * share)

    def lanes(self) -> dict[int, Lane]:
        """Return the lanes of this rank, at their start, by number."""
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
        return WindowPacker(self.masking, end=data.end)


def _check_ranks(config: StreamConfig, rank: int, world: int) -> None:
    if world < 1 or not 0 <= rank < world:
        raise ConfigError("bad rank", expected=f"0 to {world - 1}", actual=rank)
    if config.data.num_lanes % world:
        raise ConfigError(
            "the ranks do not divide the lanes",
            expected=f"data.num_lanes as a multiple of {world}",
            actual=config.data.num_lanes,
            remedy="fix data.num_lanes at a number that every number of ranks divides",
        )
    if world > 1 and not config.data.repeat:
        raise ConfigError(
            "a stream that ends would give ranks unequal numbers of batches",
            expected="data.repeat = true with more than one rank",
            remedy="stop after a number of steps instead, and evaluate on one rank",
        )
