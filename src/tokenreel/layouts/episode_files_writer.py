"""Write episode folders: tokens.bin (uint32), mask.bin (float32), episodes.idx per split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenreel.filesystem import FileSystem, OutputFile
from tokenreel.layouts.episode_files import INDEX, MASK, TOKEN_DTYPE, TOKENS
from tokenreel.layouts.split_batches import loss_weights
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.narrow import narrowed

PAIR = np.dtype("<u8")


class EpisodesWriter:
    """Append documents as episodes; the mask is written where there are weights or turns."""

    def __init__(self, folder: Path, *, vocab_size: int, filesystem: FileSystem) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._filesystem = filesystem
        self._files: dict[str, dict[str, OutputFile]] = {}

    def add(self, documents: DocumentBatch, *, split: str) -> None:
        """Append documents to a split."""
        weights = loss_weights(documents)
        files = self._open(split, with_mask=weights is not None)
        base = files[TOKENS].num_bytes // TOKEN_DTYPE.itemsize
        place = f"split {split}, ids from token {base:,} on"
        for ids in narrowed(documents.ids, TOKEN_DTYPE, limit=self._vocab_size, where=place):
            files[TOKENS].write(ids)
        if weights is not None:
            files[MASK].write(weights.astype("<f4", copy=False))
        pairs = np.empty((len(documents), 2), PAIR)
        pairs[:, 0] = documents.offsets[:-1] + base
        pairs[:, 1] = np.diff(documents.offsets)
        files[INDEX].write(pairs)

    def _open(self, split: str, *, with_mask: bool) -> dict[str, OutputFile]:
        if split not in self._files:
            names = (TOKENS, MASK, INDEX) if with_mask else (TOKENS, INDEX)
            self._filesystem.make_dir(self._folder / split)
            self._files[split] = {
                name: self._filesystem.create(self._folder / split / name) for name in names
            }
        return self._files[split]

    def finish(self) -> None:
        """Make all files durable."""
        for files in self._files.values():
            for file in files.values():
                file.finish()

    def close(self) -> None:
        """Let go of all files."""
        for files in self._files.values():
            for file in files.values():
                file.close()
