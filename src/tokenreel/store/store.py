"""An opened store, whichever layout it came in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.display import count_of, drawn_or_none, few, named, never_raising, table
from tokenreel.errors import ConfigError, MismatchError
from tokenreel.store.manifest import Manifest
from tokenreel.store.split import Document, Split


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """Splits of tokens and documents, and what is known about them.

    Made by `open_store`. `dtype_source` says what declared the dtype: "manifest",
    "argument", a file's name, or "file size" where it had to be inferred.
    """

    path: Path
    layout: str
    dtype: np.dtype
    dtype_source: str
    splits: Mapping[str, Split]
    make_fingerprint: Callable[[], str]
    vocab_size: int | None = None
    tokenizer: Mapping[str, Any] | None = None
    manifest: Manifest | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content, wherever it lies; of a foreign layout, of samples of it."""
        return self.make_fingerprint()

    @property
    def has_checksums(self) -> bool:
        """Whether every byte is vouched for by a checksum."""
        return self.manifest is not None

    @property
    def num_tokens(self) -> int:
        """How many tokens all splits have together."""
        return sum(split.num_tokens for split in self.splits.values())

    @property
    def num_documents(self) -> int | None:
        """How many documents all splits have together, or None where they are not known."""
        counts = [split.num_documents for split in self.splits.values()]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def tokenizer_fingerprint(self) -> str | None:
        """The fingerprint of the tokenizer that its ids are of; None where that is not recorded."""
        recorded = (self.tokenizer or {}).get("fingerprint")
        return None if recorded is None else str(recorded)

    def check_tokenizer(self, fingerprint: str, *, remedy: str) -> None:
        """Raise MismatchError if the ids are known to be of another tokenizer."""
        recorded = self.tokenizer_fingerprint
        if recorded is not None and recorded != fingerprint:
            raise MismatchError(
                "the ids of the store are of another tokenizer",
                differing={"tokenizer": (recorded, fingerprint)},
                where=self.path,
                remedy=remedy,
            )

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise ConfigError(
                f"no split {split!r}", where=self.path, expected=" or ".join(sorted(self.splits))
            )
        return self.splits[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def document(self, number: int, *, split: str = "train") -> Document:
        """Return a document by its number."""
        return self[split].document(number)

    def check_sizes(self) -> None:
        """Raise DamageError if a file has changed its size; cheap enough for every epoch."""
        for split in self.splits.values():
            split.check_sizes()

    @never_raising
    def __repr__(self) -> str:
        return named("Store", [repr(str(self.path)), *self._facts()], self._lines())

    @drawn_or_none
    def _repr_html_(self) -> str:
        head = ("split", "documents", "tokens", "shards", "turns", "weights", "records")
        rows = []
        for name, split in self.splits.items():
            counts = (split.num_documents, split.num_tokens, len(split.shards))
            rows.append((name, *counts, split.has_turns, split.has_weights, split.has_records))
        return table(f"Store {self.path}", head, rows, facts=self._facts())

    def _facts(self) -> list[str]:
        size = None if self.vocab_size is None else f"vocabulary of {self.vocab_size:,}"
        facts = [self.layout, self.dtype.name, size, (self.tokenizer or {}).get("name")]
        return [str(fact) for fact in facts if fact]

    def _lines(self) -> list[str]:
        lines = [
            f"{name}: {count_of(split.num_documents, 'document')}, "
            f"{count_of(split.num_tokens, 'token')}"
            + ", turns" * split.has_turns
            + ", groups" * split.has_groups
            + ", weights" * split.has_weights
            + ", records" * split.has_records
            for name, split in self.splits.items()
        ]
        return few(lines, "splits")
