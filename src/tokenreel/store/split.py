"""One split of a store: the tokens and the documents of its shards, counted through."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tokenreel.display import MOST_LINES, count_of, few, named, never_raising
from tokenreel.errors import DamageError, StoreError
from tokenreel.store.shard import Shard
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import TURN, token_weights, told_turns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """One document: its tokens and all that is kept of it.

    tokens: [n]; turns: TURN, starts from the first token; weights: stored ones [n]; record: what
    else the source said of it, such as the answer to a prompt; None where no records are kept.
    """

    split: str
    number: int
    tokens: np.ndarray
    turns: np.ndarray | None = None
    weights: np.ndarray | None = None
    provenance: Provenance | None = None
    record: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def loss_weights(self) -> np.ndarray:
        """float32 [n]: the stored weights, else those of the turns, else ones."""
        if self.weights is not None:
            return self.weights.astype(np.float32)
        if self.turns is not None:
            return token_weights(self.turns, len(self.tokens))
        return np.ones(len(self.tokens), np.float32)

    @never_raising
    def __repr__(self) -> str:
        facts = [f"{self.split} {self.number:,}", count_of(len(self), "token")]
        if self.provenance is not None:
            facts.append(str(self.provenance))
        if self.turns is None:
            return named("Document", facts)
        turns = few(told_turns(self.turns[:MOST_LINES]), "turns", total=len(self.turns))
        return named("Document", facts, [f"turns: {', '.join(turns) or 'none'}"])


class Split:
    """Shards in order; positions and document numbers count through all of them."""

    def __init__(self, name: str, shards: Sequence[Shard]) -> None:
        self.name = name
        self.shards = tuple(shards)

    @cached_property
    def token_starts(self) -> np.ndarray:
        """The position of each shard's first token, and the end: int64 [shards + 1]."""
        return _running_total([shard.num_tokens for shard in self.shards])

    @cached_property
    def document_starts(self) -> np.ndarray:
        """The number of the document each shard begins with, and the end: int64 [shards + 1]."""
        counts = [shard.num_documents for shard in self.shards]
        if None in counts:
            raise StoreError(
                "the documents of this split are not known",
                where=self.shards[counts.index(None)].token_file.path,
                remedy="open the store with eos_id=… to find documents by their end token",
            )
        continued = [shard.continues for shard in self.shards]
        return _running_total(
            [(count or 0) - more for count, more in zip(counts, continued, strict=True)]
        )

    @cached_property
    def _entry_ends(self) -> np.ndarray:
        entries = [shard.num_documents or 0 for shard in self.shards]
        return self.document_starts[:-1] + np.array(entries, np.int64)

    @property
    def num_tokens(self) -> int:
        """How many tokens the split has."""
        return int(self.token_starts[-1])

    @property
    def has_documents(self) -> bool:
        """Whether documents are known, by an index or a scan."""
        return all(shard.num_documents is not None for shard in self.shards)

    @property
    def num_documents(self) -> int | None:
        """How many documents the split has, or None where they are not known."""
        return int(self.document_starts[-1]) if self.has_documents else None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return tokens start to stop: a view where they lie in one shard, else a copy."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(
                f"split {self.name}: no tokens {start:,} to {stop:,} of {self.num_tokens:,}"
            )
        first = int(np.searchsorted(self.token_starts, start, side="right")) - 1
        parts = []
        for number in range(min(first, len(self.shards) - 1), len(self.shards)):
            base = int(self.token_starts[number])
            shard = self.shards[number]
            parts.append(shard.read(max(start - base, 0), min(stop - base, shard.num_tokens)))
            if stop <= base + shard.num_tokens:
                break
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def document(self, number: int) -> Document:
        """Return the document with this number."""
        if not 0 <= number < int(self.document_starts[-1]):
            raise IndexError(
                f"split {self.name}: no document {number:,} of {int(self.document_starts[-1]):,}"
            )
        # A giant document is the last entry of one shard and the first of the next ones; it
        # begins in the first shard whose entries reach beyond its number.
        return self._assemble(int(np.searchsorted(self._entry_ends, number, side="right")), number)

    def _assemble(self, shard_number: int, number: int) -> Document:
        """Return a document from its entry in a shard and, if it goes on, in the next ones."""
        first, is_last = self._entry(shard_number, number - int(self.document_starts[shard_number]))
        entries = [first]
        while is_last and self.shards[shard_number].continues:
            shard_number += 1
            entry, is_last = self._entry(shard_number, 0)
            entries.append(entry)
        if len(entries) == 1:
            return first
        weights = [entry.weights for entry in entries if entry.weights is not None]
        return Document(
            split=self.name,
            number=number,
            tokens=np.concatenate([entry.tokens for entry in entries]),
            weights=np.concatenate(weights) if weights else None,
            provenance=first.provenance,
            record=first.record,
        )

    def _entry(self, shard_number: int, number: int) -> tuple[Document, bool]:
        """Return one index entry of a shard as a document, and whether it is the shard's last."""
        shard = self.shards[shard_number]
        starts, stops = shard.documents.bounds(np.array([number]))
        start, stop = int(starts[0]), int(stops[0])
        entry = Document(
            split=self.name,
            number=int(self.document_starts[shard_number]) + number,
            tokens=shard.read(start, stop),
            turns=shard.read_turns(start, stop),
            weights=shard.read_weights(start, stop),
            provenance=shard.provenance(number),
            record=shard.record(number),
        )
        return entry, number == len(shard.documents) - 1

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return shard, start and stop within it (int64) of documents; no token is read.

        Of a document that goes on in further shards, these are of its first part.
        """
        shards = np.searchsorted(self._entry_ends, numbers, side="right")
        if len(numbers) and (numbers.min() < 0 or shards.max() >= len(self.shards)):
            raise DamageError(
                f"{self.name}: there is no document of that number",
                expected=f"0 to {int(self.document_starts[-1]) - 1:,}",
                actual=int(numbers.min() if numbers.min() < 0 else numbers.max()),
                remedy="if a plan names it, remove the folder .plans of the store",
            )
        starts, stops = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
        for shard in np.unique(shards):
            mine = shards == shard
            entries = numbers[mine] - self.document_starts[shard]
            starts[mine], stops[mine] = self.shards[shard].documents.bounds(entries)
        return shards, starts, stops

    def document_span(self, number: int) -> tuple[int, int]:
        """Return the positions in the split of a document's first token and of its end."""
        shards, starts, stops = self.locate(np.array([number]))
        shard = int(shards[0])
        start = int(self.token_starts[shard] + starts[0])
        stop = int(self.token_starts[shard] + stops[0])
        while self.shards[shard].continues and stop == self.token_starts[shard + 1]:
            shard += 1
            _, ends = self.shards[shard].documents.bounds(np.array([0]))
            stop = int(self.token_starts[shard] + ends[0])
        return start, stop

    def document_lengths(self, *, every: int = 1) -> np.ndarray:
        """Return the tokens of each document, int64; with `every`, of a sample of them.

        Reads every index; 8 bytes of memory for each length.
        """
        lengths: list[np.ndarray] = []
        continued = False
        for shard in self.shards:
            entries = np.arange(0, shard.num_documents or 0, every)
            starts, stops = shard.documents.bounds(entries)
            found = stops - starts
            if continued:  # the first entry is the rest of a document that was counted before
                if every == 1:
                    lengths[-1][-1] += found[0]
                found = found[1:]
            if len(found):
                lengths.append(found)
            continued = shard.continues
        return np.concatenate(lengths) if lengths else np.empty(0, np.int64)

    def provenance(self, number: int) -> Provenance | None:
        """Return where a document came from, if that is kept; its tokens are not read."""
        shard = int(np.searchsorted(self._entry_ends, number, side="right"))
        return self.shards[shard].provenance(number - int(self.document_starts[shard]))

    def document_bounds(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the first tokens and ends of documents first to stop, int64."""
        begins, ends = np.empty(stop - first, np.int64), np.empty(stop - first, np.int64)
        shard = int(np.searchsorted(self._entry_ends, first, side="right"))
        while shard < len(self.shards) and self.document_starts[shard] < stop:
            base = int(self.document_starts[shard])
            low, high = max(first, base), min(stop, int(self._entry_ends[shard]))
            starts, stops = self.shards[shard].documents.bounds(np.arange(low, high) - base)
            # The first entry may go on with a document that began in the shard before.
            goes_on = int(low == base and shard > 0 and self.shards[shard - 1].continues)
            begins[low - first + goes_on : high - first] = starts[goes_on:]
            ends[low - first : high - first] = stops
            begins[low - first + goes_on : high - first] += self.token_starts[shard]
            ends[low - first : high - first] += self.token_starts[shard]
            shard += 1
        return begins, ends

    def record(self, number: int) -> dict[str, Any] | None:
        """Return the record of a document, no token of it; None where no records are kept."""
        shard = int(np.searchsorted(self._entry_ends, number, side="right"))
        return self.shards[shard].record(number - int(self.document_starts[shard]))

    @property
    def has_records(self) -> bool:
        """Whether every shard keeps the records of its documents."""
        return all(shard.record_file is not None for shard in self.shards)

    @property
    def has_turns(self) -> bool:
        """Whether every shard has a turn table."""
        return all(shard.turn_file is not None for shard in self.shards)

    @property
    def has_groups(self) -> bool:
        """Whether documents are groups of answers to one prompt."""
        return any(shard.has_groups for shard in self.shards)

    @property
    def has_weights(self) -> bool:
        """Whether every shard has stored loss weights."""
        return all(shard.weight_file is not None for shard in self.shards)

    def turns_between(self, start: int, stop: int) -> np.ndarray:
        """Return the turns (TURN) that begin at positions start to stop; starts are positions."""
        parts = [np.empty(0, TURN)]
        for number in self._shards_between(start, stop):
            base, turns = int(self.token_starts[number]), self.shards[number].turns
            if turns is None:
                continue
            low, high = (bisect_left(turns["start"], max(at - base, 0)) for at in (start, stop))
            part = turns[low:high].copy()
            part["start"] += np.uint64(base)
            parts.append(part)
        return np.concatenate(parts)

    def weights_between(self, start: int, stop: int) -> np.ndarray:
        """Return the stored loss weights of the tokens at positions start to stop."""
        parts = []
        for number in self._shards_between(start, stop):
            base, shard = int(self.token_starts[number]), self.shards[number]
            part = shard.read_weights(max(start - base, 0), min(stop - base, shard.num_tokens))
            if part is not None:
                parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def _shards_between(self, start: int, stop: int) -> range:
        first = int(np.searchsorted(self.token_starts, start, side="right")) - 1
        return range(first, int(np.searchsorted(self.token_starts[:-1], stop)))

    def documents(self) -> Iterator[Document]:
        """Yield all documents in order."""
        for number in range(int(self.document_starts[-1])):
            yield self.document(number)

    def check_sizes(self) -> None:
        """Raise DamageError if a file of the split has changed its size since it was opened."""
        for shard in self.shards:
            shard.check_sizes()

    @never_raising
    def __repr__(self) -> str:
        counts = [(self.num_documents, "document"), (self.num_tokens, "token")]
        facts = [count_of(*count) for count in (*counts, (len(self.shards), "shard"))]
        kept = {
            "turns": self.has_turns,
            "groups": self.has_groups,
            "weights": self.has_weights,
            "records": self.has_records,
        }
        return named("Split", [repr(self.name), *facts, *(key for key in kept if kept[key])])


def _running_total(counts: Sequence[int]) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64))))
