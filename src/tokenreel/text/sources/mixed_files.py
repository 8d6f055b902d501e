"""Files of any kind as one source.

`identity` and `ranges` need one pass over every byte (2–4 GB/s a core, several files at
once where there are cores), made once and carried along when the source is pickled;
reading checks that a file still has the size it was planned with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.sources.blocks import COMPRESSIONS
from tokenreel.text.sources.files import SourceFile
from tokenreel.text.sources.jsonl import divide_lines, line_steps
from tokenreel.text.sources.jsonl_columns import ColumnReader
from tokenreel.text.sources.lines import FileFacts, hash_file, index_lines
from tokenreel.text.sources.parquet import divide_row_groups, row_steps
from tokenreel.text.sources.read_options import MIB, ReadOptions
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource
from tokenreel.text.sources.text_files import document_steps, group_files

LARGE_BYTES = MIB  # of a file worth a thread


class FileSource(TextSource):
    """Read JSONL, Parquet and text files, in the order given."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        *,
        name: str,
        options: ReadOptions | None = None,
        ignored: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.options = options or ReadOptions()
        self.files = tuple(files)
        self.ignored = tuple(ignored)
        self._facts: tuple[FileFacts, ...] | None = None
        self._by_name = {file.name: index for index, file in enumerate(self.files)}

    def identity(self) -> dict[str, Any]:
        """Return name, kind and hash of every file, in order, and the options that matter."""
        files = [
            {"name": file.name, "kind": file.kind, "xxh3": facts.xxh3}
            for file, facts in zip(self.files, self.facts(), strict=True)
        ]
        return {"kind": "files", "files": files, **self.options.identity()}

    def facts(self) -> tuple[FileFacts, ...]:
        """Return size, hash and line index of every file."""
        if self._facts is None:
            self._facts = _facts_of(self.files)
        return self._facts

    def first_file(self) -> FileSource:
        """Return a source of the first file alone, to be read from its start, and not hashed.

        Its identity means nothing, and it can be divided into one range only.
        """
        first = FileSource(self.files[:1], name=self.name, options=self.options)
        sizes = (file.path.stat().st_size for file in first.files)
        first._facts = tuple(FileFacts(num_bytes=size, xxh3="") for size in sizes)
        return first

    def ranges(self, target_bytes: int) -> list[Range]:
        """Divide the files: lines by bytes, Parquet by row groups, text files in groups."""
        parts: list[Range] = []
        for is_text, run in groupby(range(len(self.files)), self._is_text):
            indices = list(run)
            if is_text:
                parts.extend(self._group(indices, target_bytes))
            else:
                for index in indices:
                    parts.extend(self._divide(index, target_bytes))
        return parts

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield each record or bad record of the range with the cursor of what follows it."""
        if part.kind == "text":
            for index in range(part.start, part.stop):
                self._check_size(index)
            return document_steps(self.files, part, cursor=cursor, options=self.options)
        index = self._by_name[part.file]
        self._check_size(index)
        read = line_steps if part.kind == "jsonl" else row_steps
        return read(self.files[index].path, part, cursor=cursor, options=self.options)

    def columns(self, part: Range) -> ColumnReader | None:
        """Return the documents of a range of JSON lines side by side."""
        if part.kind != "jsonl" or self.options.text_key is None:
            return None
        index = self._by_name[part.file]
        self._check_size(index)
        return ColumnReader(self.files[index].path, part, self.options)

    def _is_text(self, index: int) -> bool:
        return self.files[index].kind == "text"

    def _group(self, indices: list[int], target_bytes: int) -> list[Range]:
        sizes = [self.facts()[index].num_bytes for index in indices]
        parts = group_files(sizes, target_bytes, first=indices[0])
        return [replace(part, file=self.files[part.start].name) for part in parts]

    def _divide(self, index: int, target_bytes: int) -> list[Range]:
        file = self.files[index]
        if file.kind == "parquet":
            return divide_row_groups(file.path, file.name, target_bytes=target_bytes)
        facts = self.facts()[index]
        return divide_lines(file.path, file.name, facts=facts, target_bytes=target_bytes)

    def _check_size(self, index: int) -> None:
        path, facts = self.files[index].path, self.facts()[index]
        num_bytes = path.stat().st_size
        if num_bytes != facts.num_bytes:
            raise InputError(
                "the file changed after the work was divided",
                where=path,
                expected=f"{facts.num_bytes:,} bytes",
                actual=f"{num_bytes:,}",
                remedy="leave the inputs alone while they are read, and start again",
            )


def _facts_of(files: Sequence[SourceFile]) -> tuple[FileFacts, ...]:
    """Hash the files: large ones on as many threads as there are cores, and small ones here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    large = [file for file in files if cores != 1 and file.path.stat().st_size >= LARGE_BYTES]
    if len(large) < 2:
        return tuple(map(_facts_of_one, files))
    with ThreadPoolExecutor(min(cores or 1, len(large))) as pool:
        hashing = {file.name: pool.submit(_facts_of_one, file) for file in large}
        return tuple(
            hashing[file.name].result() if file.name in hashing else _facts_of_one(file)
            for file in files
        )


def _facts_of_one(file: SourceFile) -> FileFacts:
    is_plain_jsonl = file.kind == "jsonl" and file.path.suffix not in COMPRESSIONS
    return index_lines(file.path) if is_plain_jsonl else hash_file(file.path)
