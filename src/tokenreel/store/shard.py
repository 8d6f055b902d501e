"""One shard, opened for reading.

Opening costs nothing; each file is mapped when it is first touched, and an index
is checked from end to end before anything is sliced by it. What is mapped may be let go
again (mappings.py), and is mapped anew at the next touch; what was checked is not checked
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.errors import DamageError, StoreError
from tokenreel.store.document_index import DocumentIndex, check_index, find_documents
from tokenreel.store.document_records import Records, check_records
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.id_range import check_file_ids, check_id_range
from tokenreel.store.mappings import MAPPINGS, check_descriptors, lazy
from tokenreel.store.origins import read_origin
from tokenreel.text.provenance import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A document index that is loaded when first asked.

    `is_mapped`: it is then in no memory of its own. `is_scanned`: it was found by end tokens,
    and is not of the store.
    """

    path: Path
    count: int
    load: Callable[[], DocumentIndex]
    is_mapped: bool = False
    is_scanned: bool = False


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Tokens and what belongs to them: documents, turns, weights, provenance, records.

    `has_groups`: documents are groups of answers, which the turns tell apart. `continues`: its
    last document goes on in the next shard. `id_limit`: tokens are refused
    from this id on, when they are first touched; None: they are not looked at.
    """

    name: str
    token_file: ArrayFile
    index_file: IndexFile | None = None
    turn_file: ArrayFile | None = None
    weight_file: ArrayFile | None = None
    origin_file: ArrayFile | None = None
    string_file: ArrayFile | None = None
    record_file: ArrayFile | None = None
    object_file: ArrayFile | None = None
    has_groups: bool = False
    continues: bool = False
    mode: str = "mmap"
    id_limit: int | None = None

    def checking_ids(self, limit: int) -> Shard:
        """Return the same shard, which raises VocabularyError for an id of `limit` or more."""
        checked = copy(self)
        checked.let_go(
            {"tokens", "turns", "weights", "_strings", "_records"}
        )  # which the other keeps
        checked.__dict__["_checked"] = self.__dict__.get("_checked", set()) - {"ids"}
        object.__setattr__(checked, "id_limit", limit)
        return checked

    @property
    def num_tokens(self) -> int:
        """How many tokens the shard has."""
        return self.token_file.count

    @property
    def num_documents(self) -> int | None:
        """How many entries its document index has; None without an index."""
        return None if self.index_file is None else self.index_file.count

    @property
    def files(self) -> tuple[ArrayFile, ...]:
        """Every array of the shard that has a file."""
        optional = [self.turn_file, self.weight_file, self.origin_file, self.string_file]
        optional += [self.record_file, self.object_file]
        return (self.token_file, *(file for file in optional if file is not None))

    @property
    def num_mapped(self) -> int:
        """How many of its files are mapped when all that batches need of it is touched."""
        if self.mode != "mmap":
            return 0
        index = self.index_file is not None and self.index_file.is_mapped
        return 1 + index + (self.turn_file is not None) + (self.weight_file is not None)

    @lazy
    def tokens(self) -> np.ndarray:
        """All tokens, zero-copy (mode mmap)."""
        if self.id_limit is not None:
            self._once("ids", lambda: check_file_ids(self.token_file, self.id_limit))
        return self.token_file.map()

    @lazy
    def documents(self) -> DocumentIndex:
        """The document index, checked from end to end."""
        file = self.index_file
        if file is None:
            raise DamageError(
                "this layout has no document index",
                where=self.token_file.path,
                remedy="open the store with eos_id=… to find documents by their end token",
            )
        index = file.load()
        if file.is_mapped:
            self.__dict__["_index_bytes"] = file.path.stat().st_size
        self._once(
            "documents",
            lambda: check_index(index, num_tokens=self.num_tokens, where=file.path),
        )
        return index

    @lazy
    def turns(self) -> np.ndarray | None:
        """The turn table (TURN), starts counted from the shard's first token; checked."""
        file = self.turn_file
        if file is None:
            return None
        turns = file.whole(self.mode)
        self._once("turns", lambda: check_turns(turns, num_tokens=self.num_tokens, where=file.path))
        return turns

    @lazy
    def weights(self) -> np.ndarray | None:
        """Loss weights per token, zero-copy (mode mmap), or None."""
        return None if self.weight_file is None else self.weight_file.map()

    def check_sidecars(self) -> None:
        """Raise DamageError if a mapped sidecar was cut off that numpy is about to read.

        For what makes batches without the kernels, whose reading is guarded (native/guard.c);
        two or three microseconds.
        """
        if self.mode != "mmap":
            return
        for file in (self.turn_file, self.weight_file):
            if file is not None:
                _refuse_cut_off(file.path, file.file_bytes)
        self._check_index_size()

    def _check_index_size(self) -> None:
        expected: int | None = self.__dict__.get("_index_bytes")
        if self.index_file is not None and expected is not None:
            _refuse_cut_off(self.index_file.path, expected)

    def note(self, name: str, made: object) -> None:
        """Keep count of a file that was mapped for an attribute: it may be let go."""
        is_copy = name == "documents" and not (self.index_file and self.index_file.is_mapped)
        if self.mode == "mmap" and made is not None and not is_copy:
            MAPPINGS.keep(self, name)

    def let_go(self, names: Set[Hashable]) -> None:
        """Drop the mapped files of these attributes; whoever holds an array keeps it."""
        for name in names:
            self.__dict__.pop(str(name), None)
            MAPPINGS.forget(self, name)

    def _once(self, name: str, check: Callable[[], None]) -> None:
        """Check something unless that was done before what was checked was let go."""
        done: set[str] = self.__dict__.setdefault("_checked", set())
        if name not in done:
            check()
            done.add(name)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return tokens start to stop: a view (mode mmap) or a copy (mode pread).

        A view reads the file: who touches it after the file was cut off is killed by SIGBUS.
        """
        tokens = self._slice(self.token_file, "tokens", start, stop)
        if self.id_limit is not None and self.mode == "pread":  # there is no touch of all of them
            check_id_range(tokens, self.id_limit, where=self.token_file.path, start=start)
        return tokens

    def read_weights(self, start: int, stop: int) -> np.ndarray | None:
        """Return the stored weights of tokens start to stop, or None where none are stored."""
        if self.weight_file is None:
            return None
        return self._slice(self.weight_file, "weights", start, stop)

    def read_turns(self, start: int, stop: int) -> np.ndarray | None:
        """Return the turns that begin in tokens start to stop, counted from `start`."""
        if self.turns is None:
            return None
        first, last = np.searchsorted(self.turns["start"], np.array([start, stop], np.uint64))
        turns = self.turns[first:last].copy()
        turns["start"] -= np.uint64(start)
        return turns

    def cut_at_documents(
        self, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Cut token ranges, none empty, where documents end.

        Returns, for each part in order, which range it is of, its start and stop, and the
        number of its document in the shard; all int64.
        """
        self._check_index_size()
        first = find_documents(self.documents, starts)
        last = find_documents(self.documents, stops - 1)
        if min(first.min(), last.min()) < 0:
            raise StoreError(
                "some tokens belong to no document, so a window over them has no segments",
                where=self.token_file.path,
                remedy="make rows of documents instead: episodes or packed",
            )
        counts = last - first + 1
        owner = np.repeat(np.arange(len(starts)), counts)
        ends = np.cumsum(counts)
        numbers = np.arange(int(ends[-1])) + (first - (ends - counts))[owner]
        begins, finishes = self.documents.bounds(numbers)
        begins = np.maximum(begins, starts[owner])
        finishes = np.minimum(finishes, stops[owner])
        filled = finishes > begins
        return owner[filled], begins[filled], finishes[filled], numbers[filled]

    def provenance(self, number: int) -> Provenance | None:
        """Return where the number-th document of the shard came from, if that is kept."""
        if self.origin_file is None or self.string_file is None:
            return None
        record = self.origin_file.read(number, number + 1)[0]
        return read_origin(record, self._strings, where=self.string_file.path)

    def provenances(self, start: int, stop: int) -> list[Provenance] | None:
        """Return where documents start to stop of the shard came from, read at once."""
        if self.origin_file is None or self.string_file is None:
            return None
        records = self.origin_file.read(start, stop)
        where = self.string_file.path
        return [read_origin(record, self._strings, where=where) for record in records]

    def record(self, number: int) -> dict[str, Any] | None:
        """Return the record of the number-th document of the shard; None: none are kept."""
        records = self.records
        return None if records is None else records[number]

    @property
    def records(self) -> Records | None:
        """The records of all documents of the shard; None where none are kept."""
        if self.record_file is None or self.object_file is None:
            return None
        for file in (self.record_file, self.object_file) if self.mode == "mmap" else ():
            _refuse_cut_off(file.path, file.file_bytes)
        return self._records

    @lazy
    def _records(self) -> Records | None:
        files = self.record_file, self.object_file
        if files[0] is None or files[1] is None:
            return None
        offsets, text = (file.whole(self.mode) for file in files if file is not None)
        where = files[0].path
        self._once("records", lambda: check_records(offsets, num_bytes=len(text), where=where))
        return Records(text=text, offsets=offsets, where=files[1].path)

    @lazy
    def _strings(self) -> np.ndarray:
        if self.string_file is None:
            return np.empty(0, np.uint8)
        return self.string_file.whole(self.mode)

    def _slice(self, file: ArrayFile, name: str, start: int, stop: int) -> np.ndarray:
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"{self.name}: no tokens {start:,} to {stop:,} of {self.num_tokens:,}")
        if self.mode == "mmap":
            array: np.ndarray = getattr(self, name)
            return array[start:stop]
        return file.read(start, stop)

    def check_sizes(self) -> None:
        """Raise DamageError if a file has changed its size."""
        for file in self.files:
            file.check_size()


def check_mappable(shards: Sequence[Shard], *, where: Path) -> None:
    """Raise LimitError if the process may not have all that batches need of these shards mapped."""
    check_descriptors(sum(shard.num_mapped for shard in shards), where=where)


def check_turns(turns: np.ndarray, *, num_tokens: int, where: Path) -> None:
    """Raise DamageError for the first turn that is out of order, overlaps or leaves the shard."""
    starts = turns["start"].astype(np.int64)
    stops = starts + turns["length"]
    before = np.concatenate((np.zeros(1, np.int64), stops[:-1]))[: len(turns)]
    trained = turns["length"].astype(np.int64) - turns["head"] - turns["tail"]
    wrong = (starts < before) | (stops < starts) | (stops > num_tokens) | (trained < 0)
    wrong |= ~np.isfinite(turns["weight"]) | (turns["weight"] < 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DamageError(
            f"turn {at:,} is not in order, not inside the shard, or has a bad weight",
            where=where,
            expected=f"{int(before[at]):,} <= start <= stop <= {num_tokens:,}",
            actual=f"start {int(starts[at]):,}, stop {int(stops[at]):,}",
            remedy='run "tokenreel verify"',
        )


def _refuse_cut_off(path: Path, expected: int) -> None:
    """Raise DamageError if a mapped file is shorter than it was; one without a name is whole."""
    try:
        actual = path.stat().st_size
    except OSError:  # its name is gone; the mapping is not
        return
    if actual < expected:
        raise DamageError(
            "the file was cut off while it was mapped",
            where=path,
            expected=f"{expected:,} bytes",
            actual=f"{actual:,} bytes",
            remedy="restore the file, then start again",
        )
