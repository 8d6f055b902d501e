"""The text a tokenizer is trained on: all there is, or a sample taken evenly from all of it.

    sources ─► parts of about 4 MB ─► of each part, its share of `sample_bytes` ─► lines

A part has the share of the sample that its bytes are of all bytes, and gives its first lines
until it has given that: every file is in the sample by its size, from its beginning to its
end, and the same sources give the same sample, which is larger than asked for by less than a
line. Where sources have fewer bytes than the sample,
all of their text is taken. Bytes are those of files: of JSON with its keys, which is more than
the text, so that a sample may be all the text already; of compressed files, each of which is
one part, as it lies on the disk. A stream, whose size nobody knows, has an equal share of the
sample beside the other sources, and gives its first lines.

Costs: one pass over the bytes of record files (2–4 GB/s a core), in which lines are found, then
the sample itself, which is held in memory. Lines are the units; a line longer than 4,000
characters is taken in parts. A file of text is cut at lines, where it has lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, BinaryIO

from tokenreel.errors import ConfigError, InputError
from tokenreel.progress import SILENT, Progress
from tokenreel.text.chats.messages import Chat
from tokenreel.text.chats.shapes import read_chat
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.files import COMPRESSED_SUFFIXES, kind_of
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.open import open_memory, open_source
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Bad, Record, Skipped, bad_record
from tokenreel.text.sources.source_protocol import Range, TextSource

LINE_CHARACTERS = 4_000
PART_BYTES = 4 << 20
SEARCH_BYTES = 64 << 10  # how far a cut of a text file moves to stand at a line
BYTE_ORDER_MARK = "\ufeff"

Lines = Generator[str, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How sources are read: see `train_tokenizer`."""

    text_key: str | None = None
    is_chat: bool = False
    on_bad: str = "error"
    sample_bytes: int | None = None

    def __post_init__(self) -> None:
        ReadOptions(**self.settings())  # refuses an unknown policy
        if self.sample_bytes is not None and self.sample_bytes < 1:
            raise ConfigError(
                "a sample of no text",
                expected="sample_bytes of 1 or more, or None for all text",
                actual=self.sample_bytes,
            )

    def settings(self) -> dict[str, Any]:
        """Return the fields of ReadOptions by which a source is opened."""
        if self.is_chat:
            return {"text_key": None, "chat_key": self.text_key, "on_bad": self.on_bad}
        return {"text_key": self.text_key or "text", "on_bad": self.on_bad}


@dataclass(slots=True, kw_only=True)
class TrainingText:
    """Lines of text with an account of them.

    num_bytes
        of the text that was taken, as UTF-8
    source_bytes
        of the files it was taken from; None where a stream does not say
    is_sample
        whether there is text that was not taken
    skipped
        the records that could not be used, with on_bad="skip"
    """

    lines: list[str] = field(default_factory=list)
    num_bytes: int = 0
    source_bytes: int | None = 0
    is_sample: bool = False
    skipped: Skipped = field(default_factory=Skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a source: its size (0: not known), and the way to read its lines."""

    num_bytes: int
    read: Callable[[Skipped], Lines]


def read_sources(
    specs: Sequence[Any], reading: Reading, *, progress: Progress = SILENT
) -> TrainingText:
    """Return the text of paths and other sources, in order."""
    return _read([_parts(spec, reading) for spec in specs], reading, progress)


def read_memory(items: Iterable[Any], reading: Reading, *, progress: Progress) -> TrainingText:
    """Return the text of documents or chats in memory, in order."""
    opened = open_memory(items, **reading.settings())
    return _read([_source_parts(opened, reading)], reading, progress)


def _read(sources: list[list[Part]], reading: Reading, progress: Progress) -> TrainingText:
    parts = [part for source in sources for part in source]
    is_known = all(part.num_bytes for part in parts)
    text = TrainingText(source_bytes=sum(p.num_bytes for p in parts) if is_known else None)
    shares = _shares(parts, reading.sample_bytes, num_sources=len(sources))
    progress.start("reading", total=text.source_bytes, unit="B")
    debt = 0.0  # what parts gave beyond their shares, because a line is taken whole
    for part, share in zip(parts, shares, strict=True):
        with closing(part.read(text.skipped)) as lines:
            taken = _take(text, lines, share - debt)
        debt = max(0.0, taken - (share - debt))
        progress.advance(part.num_bytes or taken)
    return text


def _shares(parts: Sequence[Part], sample_bytes: int | None, *, num_sources: int) -> list[float]:
    """Return how many bytes of text each part may give."""
    if sample_bytes is None:
        return [float("inf")] * len(parts)
    unknown = ceil(sample_bytes / max(1, num_sources))
    num_unknown = sum(not part.num_bytes for part in parts)
    known_bytes = max(1, sum(part.num_bytes for part in parts))
    left = max(0, sample_bytes - unknown * num_unknown)
    # Rounded up: a part of sources that are smaller than the sample never misses its last byte.
    return [
        ceil(left * part.num_bytes / known_bytes) if part.num_bytes else unknown for part in parts
    ]


def _take(text: TrainingText, lines: Iterable[str], share: float) -> int:
    """Add lines until they have the bytes of the share, the last one whole; return their bytes."""
    before = text.num_bytes
    for line in lines:
        for start in range(0, len(line), LINE_CHARACTERS):
            if text.num_bytes - before >= share:
                text.is_sample = True
                return text.num_bytes - before
            cut = line[start : start + LINE_CHARACTERS]
            text.lines.append(cut)
            text.num_bytes += len(cut.encode("utf-8", "surrogatepass"))
    return text.num_bytes - before


def _parts(spec: Any, reading: Reading) -> list[Part]:
    if not reading.is_chat and isinstance(spec, (str, os.PathLike)) and _is_plain(Path(spec)):
        return _plain_parts(Path(spec), reading)
    if isinstance(spec, TextSource):
        return _source_parts(spec, reading)
    return _source_parts(open_source(spec, **reading.settings()), reading)


def _source_parts(source: TextSource, reading: Reading) -> list[Part]:
    parts = []
    for place in source.ranges(PART_BYTES):
        files = _plain_files(source, place)
        if files and not reading.is_chat:
            for file in files:
                parts += _plain_parts(file, reading)
        else:
            read = partial(_record_lines, source, place, reading)
            parts.append(Part(num_bytes=place.num_bytes, read=read))
    return parts


def _record_lines(source: TextSource, place: Range, reading: Reading, skipped: Skipped) -> Lines:
    reader = source.read(place)
    try:
        for record in reader:
            for text in _texts(record, reading, skipped):
                yield from text.splitlines(keepends=True)
    finally:
        skipped.merge(reader.skipped)


def _texts(record: Record, reading: Reading, skipped: Skipped) -> Iterable[str]:
    if not reading.is_chat:
        if record.text is None:
            raise InputError(
                "the source gives objects, not documents",
                where=str(record.provenance),
                remedy="train with chat=True, or name the field of the text (text_key)",
            )
        return (record.text,)
    if record.value is None:
        raise InputError(
            "the source gives documents, not chats",
            where=str(record.provenance),
            remedy="train without chat=True",
        )
    try:
        return chat_texts(read_chat(record.value, record.provenance))
    except InputError as error:
        if reading.on_bad == "error":
            raise
        reason = f"chat: {error.what.partition(':')[0]}"
        skipped.add(Bad(reason=reason, provenance=record.provenance, error=error))
        return ()


def chat_texts(chat: Chat) -> Iterator[str]:
    """Yield the texts of a chat: tool schemas, then what each turn says and calls.

    >>> list(chat_texts(read_chat({"prompt": "2+2?", "completion": "4"})))
    ['2+2?', '4']
    """
    yield from chat.tools
    for message in chat.messages:
        yield message.content
        yield from (call.as_json() for call in message.calls)


def _is_plain(path: Path) -> bool:
    """Tell whether a path is a file that holds nothing but text."""
    try:
        return kind_of(path) in (None, "text") and _is_unpacked(path) and path.is_file()
    except (OSError, ValueError):  # what is too long for a path, or cannot be one
        return False


def _is_unpacked(path: Path) -> bool:
    return path.suffix.lower() not in COMPRESSED_SUFFIXES


def _plain_files(source: TextSource, place: Range) -> list[Path]:
    """Return the files of a range of text files; none where it is of something else."""
    if not isinstance(source, FileSource) or place.kind != "text":
        return []
    files = [file.path for file in source.files[place.start : place.stop]]
    return files if all(map(_is_unpacked, files)) else []


def _plain_parts(path: Path, reading: Reading) -> list[Part]:
    """Cut a file of text into parts that begin and end with a line, where it has lines."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        cuts = [_cut(stream, place) for place in range(PART_BYTES, size, PART_BYTES)]
    return [
        Part(
            num_bytes=stop - start,
            read=partial(_plain_lines, path, (start, stop), reading.on_bad),
        )
        for start, stop in zip([0, *cuts], [*cuts, size], strict=True)
        if start < stop
    ]


def _cut(stream: BinaryIO, place: int) -> int:
    """Return where a line begins at or after a place; if none does nearby, a character."""
    stream.seek(place - 1)
    data = stream.read(SEARCH_BYTES)
    found = data.find(b"\n")
    if found >= 0:
        return place + found
    # In UTF-8 a byte 10xxxxxx goes on with the character before it; there are three at most.
    return place + next((n for n, byte in enumerate(data[1:5]) if byte & 0xC0 != 0x80), 0)


def _plain_lines(path: Path, bounds: tuple[int, int], on_bad: str, skipped: Skipped) -> Lines:
    start, stop = bounds
    with path.open("rb") as stream:
        stream.seek(start)
        data = stream.read(stop - start)
    for raw in data.splitlines(keepends=True):
        try:
            line = raw.decode()
        except UnicodeDecodeError as fault:
            bad = bad_record(
                f"no UTF-8 ({fault.reason})",
                Provenance(file=str(path)),
                byte=start + fault.start,
                remedy='repair the file, or leave its line out with on_bad="skip"',
            )
            if on_bad == "error":
                raise bad.error from None
            skipped.add(bad)
        else:
            yield line.removeprefix(BYTE_ORDER_MARK) if start == 0 else line
        start += len(raw)
