"""Documents of JSON lines side by side: their UTF-8, and where each of them was read.

The short way from a file to a tokenizer: a kernel takes the texts out of about 2 MiB of
lines at a time (1–2 GB/s), and no object is made for a line but the bytes of its text.
It takes only lines it has understood to the last byte; every other line goes through
`parse_line`, as does every line where there is no kernel, so the records and the errors
are those of `line_steps`, and so is what is skipped.

Memory: a window of lines and their texts. A line that does not fit LINE_BYTES ends the
short way: the rest of the range is read record by record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from tokenreel import native
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.blocks import COMPRESSIONS, fill, uncompressed_blocks
from tokenreel.text.sources.extract import too_long
from tokenreel.text.sources.jsonl import line_steps, parse_line
from tokenreel.text.sources.lines import count_newlines
from tokenreel.text.sources.read_options import MIB, ReadOptions
from tokenreel.text.sources.record import Record, Skipped, Tally
from tokenreel.text.sources.source_protocol import Range, Reader

WINDOW_BYTES = 2 * MIB  # what the fastest tokenizer encodes fastest
LINE_BYTES = 8 * MIB
MAX_LINES = 1 << 13  # with a document, of a call of the kernel
Window = tuple[bytes | bytearray, int]  # lines, and where the last whole one ends
FOUND = np.dtype(
    [
        (name, np.int64)
        for name in ("text_start", "text_stop", "id_start", "id_stop", "line_start", "line_number")
    ]
)
BLANK_LINES = re.compile(rb"\s*\n")


@dataclass(slots=True, kw_only=True)
class Columns:
    """Documents of one file: UTF-8, number of the line, its first byte, and its id if it has one.

    `ids` is as long as the others once one document has an id, and empty before. `dirt` counts
    what was found in the texts (dirt.py).
    """

    file: str
    texts: list[bytes] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    dirt: Tally = field(default_factory=Tally)

    def __len__(self) -> int:
        return len(self.texts)

    def provenance(self, number: int) -> Provenance:
        """Return where a document was read."""
        name = self.ids[number] if self.ids else None
        return Provenance(file=self.file, row=self.rows[number], byte=self.starts[number], id=name)

    def add(self, record: Record) -> None:
        """Append a document that was read by itself."""
        place = record.provenance
        self.extend([(record.text or "").encode()], [place.row or 0], [place.byte or 0], [place.id])
        self.dirt.note_dirt(record)

    def extend(
        self, texts: list[bytes], rows: Iterable[int], starts: Iterable[int], ids: list[str | None]
    ) -> None:
        """Append documents; an empty list of ids means that no document has an id."""
        if any(name is not None for name in ids) and not self.ids:
            self.ids = [None] * len(self.texts)
        if self.ids or any(name is not None for name in ids):
            self.ids += ids or [None] * len(texts)
        self.texts += texts
        self.rows += rows
        self.starts += starts


class ColumnReader(Iterator[Columns]):
    """Iterate over the documents of a range of JSON lines, a window at a time."""

    def __init__(self, path: Path, part: Range, options: ReadOptions) -> None:
        self.skipped = Skipped()
        self._path = path
        self._part = part
        self._options = options
        self._byte, self._row = part.start, part.row
        self._packed_bytes: int | None = None
        self._scan = _Scanner(options)
        self._steps = self._read()

    @property
    def num_read_bytes(self) -> int:
        """How much of the range has been read: of a compressed file, of what is on disk."""
        return self._byte - self._part.start if self._packed_bytes is None else self._packed_bytes

    def __next__(self) -> Columns:
        return next(self._steps)

    def _read(self) -> Iterator[Columns]:
        for window in self._windows():
            if window is None:
                yield from self._rest()
                return
            columns = self._documents(*window)
            if len(columns):
                yield columns

    def _windows(self) -> Iterator[Window | None]:
        if self._path.suffix in COMPRESSIONS:
            return _windows(uncompressed_blocks(self._path, self._options, at=self._note))
        return _plain_windows(self._path, self._part.start, self._part.stop)

    def _note(self, packed_bytes: int) -> None:
        self._packed_bytes = packed_bytes

    def _documents(self, data: bytes | bytearray, stop: int) -> Columns:
        """Return the documents of the whole lines before `stop`, and move on behind them."""
        columns = Columns(file=self._part.file)
        window = memoryview(data)[:stop]
        at = 0
        while at < stop:
            count, num_lines, at = self._scan(window, at, self._byte, self._row, columns)
            self._row += num_lines
            if at < stop and count < MAX_LINES:
                at = self._pass_blank(data, at, stop)
            if at < stop and count < MAX_LINES:
                end = data.find(b"\n", at, stop)
                end = stop if end < 0 else end
                self._look(bytes(data[at:end]), self._byte + at, columns)
                self._row += 1
                at = end + 1
        self._byte += stop
        return columns

    def _pass_blank(self, data: bytes | bytearray, at: int, stop: int) -> int:
        """Return where the next line that is not blank begins; those before it are counted."""
        blank = BLANK_LINES.match(data, at, stop)
        # One of them may be too long, which `_look` says.
        if blank is None or blank.end() - at > self._options.max_record_bytes:
            return at
        self._row += count_newlines(memoryview(data)[at : blank.end()])
        return blank.end()

    def _look(self, line: bytes, byte: int, columns: Columns) -> None:
        """Read one line by all the rules."""
        place = Provenance(file=self._part.file, row=self._row, byte=byte)
        is_long = len(line) > self._options.max_record_bytes
        item = too_long(place, self._options) if is_long else parse_line(line, place, self._options)
        if isinstance(item, Record):
            columns.add(item)
        elif item is not None:
            if self._options.on_bad == "error":
                raise item.error
            self.skipped.add(item)

    def _rest(self) -> Iterator[Columns]:
        cursor = {"byte": self._byte, "row": self._row}
        steps = line_steps(self._path, self._part, cursor=cursor, options=self._options)
        reader = Reader(steps, cursor=cursor, on_bad=self._options.on_bad)
        reader.skipped = self.skipped
        # One by one: a line here may be as large as a window, or much larger.
        while records := list(islice(reader, 1)):
            columns = Columns(file=self._part.file)
            columns.add(records[0])
            yield columns


class _Scanner:
    """The kernel with its buffers; without a kernel, or where it cannot be used, it takes none."""

    def __init__(self, options: ReadOptions) -> None:
        extension = native.extension()
        self._kernel = getattr(extension, "scan_lines", None)
        self._text_key = (options.text_key or "").encode()
        self._id_key = None if options.id_key is None else options.id_key.encode()
        if self._text_key == self._id_key:
            self._kernel = None
        self._limit = options.max_record_bytes
        self._table = np.empty(MAX_LINES, FOUND)
        self._out = np.empty(0, np.uint8)

    def __call__(
        self, window: memoryview, at: int, byte: int, row: int, columns: Columns
    ) -> tuple[int, int, int]:
        """Take lines from `at` on into the columns; return documents, lines, and where they end."""
        if self._kernel is None:
            return 0, 0, at
        if len(self._out) < len(window):
            self._out = np.empty(len(window), np.uint8)
        count, num_lines, stop = self._kernel(
            window, at, self._text_key, self._id_key, self._limit, self._out, self._table
        )
        if count:
            self._take(self._table[:count], byte, row, columns)
        return count, num_lines, stop

    def _take(self, found: np.ndarray, byte: int, row: int, columns: Columns) -> None:
        out = self._out.data
        places = zip(found["text_start"].tolist(), found["text_stop"].tolist(), strict=True)
        ids: list[str | None] = []
        if (found["id_start"] >= 0).any():
            names = zip(found["id_start"].tolist(), found["id_stop"].tolist(), strict=True)
            ids = [None if a < 0 else str(out[a:b], "utf-8") for a, b in names]
        columns.extend(
            [bytes(out[start:stop]) for start, stop in places],
            (found["line_number"] + row).tolist(),
            (found["line_start"] + byte).tolist(),
            ids,
        )


def _plain_windows(path: Path, start: int, stop: int) -> Iterator[Window | None]:
    """Yield whole lines of about WINDOW_BYTES; None, and then no more, at one over LINE_BYTES.

    Each window is one read from where its first line begins, into memory that is used again.
    """
    wanted = WINDOW_BYTES
    data = bytearray()
    with path.open("rb", buffering=0) as file:
        while start < stop:
            # What is left over goes with the last window: a few lines are not worth a call.
            wanted = stop - start if stop - start < wanted + WINDOW_BYTES // 2 else wanted
            data = data if len(data) >= wanted else bytearray(wanted)
            file.seek(start)
            size = fill(file, memoryview(data)[:wanted])
            if not size:
                return
            is_last = start + size == stop
            end = size if is_last else data.rfind(b"\n", 0, size) + 1
            if end:
                yield data, end
                start, wanted = start + end, WINDOW_BYTES
            elif wanted > LINE_BYTES:
                yield None
                return
            else:
                wanted *= 2


def _windows(blocks: Iterable[bytes]) -> Iterator[Window | None]:
    """Yield the same windows, of a file that can only be read block by block."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size < WINDOW_BYTES:
            continue
        cut = block.rfind(b"\n") + 1
        if cut:
            data = b"".join([*held[:-1], block[:cut]])
            yield data, len(data)
            held, size = [block[cut:]], len(block) - cut
        elif size > LINE_BYTES:
            yield None
            return
    if size:
        yield b"".join(held), size
