"""Write Megatron pairs: `SPLIT.bin` and `SPLIT.idx`, one sequence per document.

The three arrays of an index are written to files of their own and joined at the
end, so memory does not grow with the number of documents. A document of more than
2³¹ − 1 tokens becomes several sequences, because their lengths are int32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenreel.filesystem import FileSystem
from tokenreel.layouts.megatron import DTYPES, HEADER, MAGIC, VERSION
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.narrow import narrowed

UINT16_CODE, INT32_CODE = 8, 4
SEQUENCE_TOKENS = 2**31 - 1
SPOOLS: dict[str, np.dtype] = {
    "lengths": np.dtype("<i4"),
    "pointers": np.dtype("<i8"),
    "documents": np.dtype("<i8"),
}


class MegatronWriter:
    """Append documents to one pair per split."""

    def __init__(
        self,
        folder: Path,
        *,
        vocab_size: int,
        filesystem: FileSystem,
        sequence_tokens: int = SEQUENCE_TOKENS,
    ) -> None:
        code = UINT16_CODE if vocab_size <= 2**16 else INT32_CODE
        self._options = (folder, code, vocab_size, filesystem, sequence_tokens)
        self._pairs: dict[str, _Pair] = {}

    def add(self, documents: DocumentBatch, *, split: str) -> None:
        """Append documents to a split."""
        if split not in self._pairs:
            self._pairs[split] = _Pair(split, *self._options)
        self._pairs[split].add(documents)

    def finish(self) -> None:
        """Make all pairs whole and durable."""
        for pair in self._pairs.values():
            pair.finish()

    def close(self) -> None:
        """Let go of all files."""
        for pair in self._pairs.values():
            pair.close()


class _Pair:
    def __init__(
        self,
        split: str,
        folder: Path,
        code: int,
        vocab_size: int,
        filesystem: FileSystem,
        sequence_tokens: int,
    ) -> None:
        self._split = split
        self._folder = folder
        self._code = code
        self._dtype = np.dtype(DTYPES[code])
        self._vocab_size = vocab_size
        self._filesystem = filesystem
        self._sequence_tokens = sequence_tokens
        self._num_sequences = 0
        self._num_entries = 1
        self._tokens = filesystem.create(folder / f"{split}.bin")
        self._spools = {name: filesystem.create(folder / f"{split}.{name}") for name in SPOOLS}
        self._write("documents", np.zeros(1, np.int64))

    def add(self, documents: DocumentBatch) -> None:
        base = self._tokens.num_bytes
        place = f"split {self._split}, ids from token {base // self._dtype.itemsize:,} on"
        for ids in narrowed(documents.ids, self._dtype, limit=self._vocab_size, where=place):
            self._tokens.write(ids)
        lengths, counts = _sequences(np.diff(documents.offsets), self._sequence_tokens)
        self._write("lengths", lengths)
        self._write("pointers", base + (np.cumsum(lengths) - lengths) * self._dtype.itemsize)
        self._write("documents", self._num_sequences + np.cumsum(counts))
        self._num_sequences += len(lengths)
        self._num_entries += len(documents)

    def _write(self, name: str, values: np.ndarray) -> None:
        self._spools[name].write(values.astype(SPOOLS[name]))

    def finish(self) -> None:
        self._tokens.finish()
        with self._filesystem.create(self._folder / f"{self._split}.idx") as index:
            index.write(
                HEADER.pack(MAGIC, VERSION, self._code, self._num_sequences, self._num_entries)
            )
            for spool in self._spools.values():
                spool.close()
                index.append_file(spool.path)
                self._filesystem.remove(spool.path)
            index.sync()

    def close(self) -> None:
        self._tokens.close()
        for spool in self._spools.values():
            spool.close()


def _sequences(lengths: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut documents into sequences; return their lengths, and how many each document has.

    >>> [a.tolist() for a in _sequences(np.array([0, 5, 2]), 2)]
    [[0, 2, 2, 1, 2], [1, 3, 1]]
    """
    counts = np.maximum(-(-lengths // most), 1)
    sequences = np.full(int(counts.sum()), most, np.int64)
    last = np.cumsum(counts) - 1
    sequences[last] = lengths - (counts - 1) * most
    return sequences, counts
