"""Write flat shards: `shard_00000.npy` or `.bin`, and metadata.yaml in the shape tatm gives it.

A store of one split "train" lies at the root; with more splits each has a folder.
A document is never cut: a shard ends with the last one that fits `shard_bytes`, and
a larger document has a shard of its own. The cuts are planned from the lengths
before a token is written, because an .npy header comes first and declares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.filesystem import FileSystem, OutputFile
from tokenreel.layouts.listing import SPLIT_NAMES
from tokenreel.layouts.npy import npy_header
from tokenreel.layouts.split_batches import Carried, document_batches
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.narrow import narrowed
from tokenreel.store.store import Store

FILE_FORMATS = ("npy", "bin")


class FlatWriter:
    """Append documents to flat shards whose sizes are planned beforehand."""

    def __init__(
        self,
        folder: Path,
        source: Store,
        *,
        vocab_size: int | None,
        dtype: np.dtype,
        shard_bytes: int,
        file_format: str,
        filesystem: FileSystem,
    ) -> None:
        if file_format not in FILE_FORMATS:
            raise ConfigError(
                "unknown file format", expected=" or ".join(FILE_FORMATS), actual=file_format
            )
        unknown = [name for name in source if name not in SPLIT_NAMES]
        if unknown:
            raise ConfigError(
                f"flat shards have no place for a split named {unknown[0]!r}",
                expected=", ".join(SPLIT_NAMES),
                remedy="convert to another layout",
            )
        self._folder = folder
        self._source = source
        self._vocab_size = vocab_size
        self._limit = vocab_size or int(np.iinfo(dtype).max) + 1
        self._dtype = dtype
        self._capacity = max(shard_bytes // dtype.itemsize, 1)
        self._file_format = file_format
        self._filesystem = filesystem
        self._splits: dict[str, _FlatSplit] = {}

    def add(self, documents: DocumentBatch, *, split: str) -> None:
        """Append documents to a split."""
        if split not in self._splits:
            at_root = list(self._source) == ["train"]
            batches = document_batches(self._source[split], Carried())
            self._splits[split] = _FlatSplit(
                self._folder if at_root else self._folder / split,
                plan_shards((np.diff(batch.offsets) for batch in batches), self._capacity),
                dtype=self._dtype,
                file_format=self._file_format,
                filesystem=self._filesystem,
            )
        place = f"split {split}, ids from token {self._splits[split].num_tokens:,} on"
        for ids in narrowed(documents.ids, self._dtype, limit=self._limit, where=place):
            self._splits[split].write(ids)

    def finish(self) -> None:
        """Make all shards durable and write the metadata."""
        for split in self._splits.values():
            split.finish()
        with self._filesystem.create(self._folder / "metadata.yaml") as metadata:
            metadata.write("".join(_yaml_lines(self._metadata())).encode())
            metadata.sync()

    def _metadata(self) -> Mapping[str, object]:
        tokenizer = self._source.tokenizer or {}
        return {
            "name": "shard",
            "description": f"converted from the {self._source.layout} layout by tokenreel",
            "date_downloaded": "",
            "download_source": "tokenreel convert",
            "data_content": "text",
            "content_field": "NA",
            "corpuses": [],
            "tokenized_info": {
                "tokenizer": str(tokenizer.get("name") or tokenizer.get("kind") or "unknown"),
                "file_prefix": "shard",
                "dtype": self._dtype.name,
                "file_extension": self._file_format,
                "vocab_size": self._vocab_size,
                "parent_datasets": [],
            },
        }

    def close(self) -> None:
        """Let go of all files."""
        for split in self._splits.values():
            split.close()


class _FlatSplit:
    """Cut one stream of tokens into files of planned sizes."""

    def __init__(
        self,
        folder: Path,
        sizes: list[int],
        *,
        dtype: np.dtype,
        file_format: str,
        filesystem: FileSystem,
    ) -> None:
        self.num_tokens = 0
        self._folder = folder
        self._sizes = sizes
        self._dtype = dtype
        self._file_format = file_format
        self._filesystem = filesystem
        self._number = -1
        self._room = 0
        self._file: OutputFile | None = None

    def write(self, ids: np.ndarray) -> None:
        self.num_tokens += len(ids)
        while len(ids):
            if self._room == 0 or self._file is None:
                self._file = self._next()
            taken = min(self._room, len(ids))
            self._file.write(ids[:taken])
            self._room -= taken
            ids = ids[taken:]

    def _next(self) -> OutputFile:
        self.finish()
        self._number += 1
        self._room = self._sizes[self._number]
        name = f"shard_{self._number:05d}.{self._file_format}"
        self._filesystem.make_dir(self._folder)
        file = self._filesystem.create(self._folder / name)
        if self._file_format == "npy":
            file.write(npy_header(self._room, self._dtype))
        return file

    def finish(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def plan_shards(lengths: Iterable[np.ndarray], capacity: int) -> list[int]:
    """Return the sizes of shards that hold whole documents of these lengths, in order.

    >>> plan_shards([np.array([3, 3]), np.array([9, 0, 1])], 6)
    [6, 9, 1]
    """
    sizes = [0]
    for some in lengths:
        ends = np.cumsum(some)
        done = 0
        while done < len(some):
            before = int(ends[done - 1]) if done else 0
            limit = before + capacity - sizes[-1]
            stop = int(np.searchsorted(ends, limit, side="right"))
            if stop <= done and sizes[-1]:
                sizes.append(0)
                continue
            stop = max(stop, done + 1)
            sizes[-1] += int(ends[stop - 1]) - before
            done = stop
    return [size for size in sizes if size]


def _yaml_lines(content: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yield YAML of nested mappings; JSON scalars and empty lists are YAML as they are."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:\n"
            yield from _yaml_lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}\n"
