"""Documents as they arrive: epoch after epoch, each with the bookmarks around it.

    source ─► Dealt (lane, held out) ─► Shuffled (keyed by seed and epoch) ─► Arrived …

Reading on from a bookmark gives exactly the documents that would have come. It costs one
opening of the source and, with shuffling, reading one shuffle block again.

Records are numbered through all files. A record is held out with a seeded chance, by its
number alone, so that it is held out in every epoch and whatever the shuffle; the others go
to the lanes in turn. Every lane reads the whole source and keeps its own: reading costs a
small part of encoding, and no two lanes need to know of each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tokenreel.config.settings import setting
from tokenreel.errors import InputError, TokenreelError
from tokenreel.seeds import derive_key
from tokenreel.stream.stream_settings import DataSettings
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources import InMemory, ReadOptions, TextSource, open_source
from tokenreel.text.sources.hub import HubDataset, HubSource
from tokenreel.text.sources.record import Bad
from tokenreel.text.sources.retry import Backoff
from tokenreel.text.sources.shuffle import Shuffled
from tokenreel.text.sources.source_protocol import Cursor, Range, Step

DEAL_VERSION = 1
STREAM = Range(kind="stream")
WHOLE = 1 << 62  # a whole file is one range, so that the cursor does not depend on a division
# Remedies of sources name keywords, and a configuration has keys: what is replaced, in this
# order, and what a stream has no key for is left out.
KEYS = (
    (r"raise max_record_bytes, or ", ""),
    (r'pass on_bad="skip"', 'set data.on_bad = "skip"'),
    (r"(; )?[^;]*\bchat=True[^;]*", ""),
    (r"texts in memory are given as texts=…[^;]*", "a text itself is given as data.local_text"),
    (r", or pass it as texts=…", ""),
    (r'pass kind="text", "jsonl" or "parquet", or a glob', "give data.local_files a glob"),
    (r'pass kind="text", "jsonl" or "parquet"', "give data.local_files files of such names"),
    (r"(?<![\w.])retry_delay\b", "data.retry_delay_sec"),
    (r"(?<![\w.])(text_key|max_retries)\b", r"data.\1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """Before document `number` of an epoch; `cursor` leads the source there, None to its start.

    >>> Bookmark.from_dict(Bookmark(number=3).as_dict()) == Bookmark(number=3)
    True
    """

    epoch: int = 0
    number: int = 0
    cursor: Cursor | None = None

    @property
    def is_start(self) -> bool:
        """Whether no document comes before it."""
        return self.epoch == self.number == 0

    def as_dict(self) -> dict[str, Any]:
        """Return the bookmark, ready for JSON.

        The cursor is text, whatever the source: Grain asks for states of one shape at all steps.
        """
        return {"epoch": self.epoch, "number": self.number, "cursor": json.dumps(self.cursor)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Bookmark:
        """Return the bookmark that `as_dict` described."""
        return cls(**{**fields, "cursor": json.loads(fields["cursor"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """Say which records are taken: of one lane, held out or not.

    >>> [Deal(lane=1, num_lanes=3).takes(number) for number in range(4)]
    [False, True, False, False]
    """

    lane: int = 0
    num_lanes: int = 1
    held_out: float = 0.0
    wants_held_out: bool = False
    seed: int = 0

    def takes(self, number: int) -> bool:
        """Tell whether the record with this number is taken."""
        if number % self.num_lanes != self.lane:
            return False
        if not self.held_out:
            return True
        chance = derive_key("held out", self.seed, number) / 2**64
        return (chance < self.held_out) == self.wants_held_out


class Dealt(TextSource):
    """Give the records of a source that a deal takes, as one range."""

    def __init__(self, source: TextSource, deal: Deal) -> None:
        self.name = source.name
        self.options = source.options
        self._source = source
        self._deal = deal

    def identity(self) -> dict[str, Any]:
        """Return the identity of the source; which part of it is taken is the stream's."""
        return self._source.identity()

    def ranges(self, target_bytes: int) -> list[Range]:
        """Return one range."""
        return [STREAM]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield what is taken with the cursor of what follows; a bad record has no number."""
        cursor = cursor or {"range": 0, "start": None, "number": 0}
        number, start = cursor["number"], cursor["start"]
        parts = self._source.ranges(WHOLE)
        for index in range(cursor["range"], len(parts)):
            for item, following in self._source.steps(parts[index], cursor=start):
                takes = self._deal.takes(number)
                number += not isinstance(item, Bad)
                if takes:
                    yield item, {"range": index, "start": following, "number": number}
            start = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A document, the bookmarks before and after it, and the bad records on the way to it."""

    text: str
    provenance: Provenance
    before: Bookmark
    after: Bookmark
    skipped: int


class Arrivals:
    """The documents of one lane, from any bookmark on."""

    def __init__(self, source: TextSource, deal: Deal, settings: DataSettings) -> None:
        self._dealt = Dealt(source, deal)
        self._deal = deal
        self._settings = settings

    def epochs(self, start: Bookmark) -> Iterator[Iterator[Arrived]]:
        """Yield the documents of each epoch, those of the first one from the bookmark on.

        The next epoch is only right when the one before has been read to its end.
        """
        yield self._epoch(start)
        for epoch in count(start.epoch + 1) if self._settings.repeat else ():
            yield self._epoch(Bookmark(epoch=epoch))

    def _epoch(self, start: Bookmark) -> Iterator[Arrived]:
        if start.epoch and not self._settings.repeat:
            return  # the state of a stream that had ended
        before, passed = start, 0
        with naming_keys():
            reader = self._ordered(start.epoch).read(STREAM, cursor=start.cursor)
            for record in reader:
                # A bookmark always stands right after a document: from there on bad records are
                # met again and passed over again.
                skipped, passed = reader.skipped.count - passed, reader.skipped.count
                after = Bookmark(epoch=start.epoch, number=before.number + 1, cursor=reader.cursor)
                yield Arrived(
                    text=record.text or "",
                    provenance=record.provenance,
                    before=before,
                    after=after,
                    skipped=skipped,
                )
                before = after
        if not before.number:
            raise InputError(
                "the source gives no document",
                where=self._dealt.name,
                expected=f"one for lane {self._deal.lane + 1} of {self._deal.num_lanes}",
                remedy="look at the source, at data.eval_fraction and data.num_lanes",
            )

    def _ordered(self, epoch: int) -> TextSource:
        if not self._settings.shuffle:
            return self._dealt
        key = derive_key("stream epoch", self._settings.seed, epoch)
        return Shuffled(self._dealt, buffer=self._settings.shuffle_buffer_size, seed=key)


def grouped(
    documents: Iterable[Arrived], max_docs: int, max_characters: int
) -> Iterator[list[Arrived]]:
    """Yield documents in groups, each closed by its number of documents or characters."""
    group: list[Arrived] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document.text)
        if len(group) >= max_docs or size >= max_characters:
            yield group
            group, size = [], 0
    if group:
        yield group


def in_keys(remedy: str) -> str:
    """Return a remedy with the keys of a stream's configuration in place of keywords.

    >>> in_keys('name the key with text_key, or pass on_bad="skip"; or build with chat=True')
    'name the key with data.text_key, or set data.on_bad = "skip"'
    """
    for keyword, key in KEYS:
        remedy = re.sub(keyword, key, remedy)
    return remedy


@contextmanager
def naming_keys() -> Iterator[None]:
    """Raise errors of ours with remedies that name keys of the configuration."""
    try:
        yield
    except TokenreelError as error:
        if error.remedy:
            error.remedy = in_keys(error.remedy)
            error.args = (error._message(),)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBackoff(Backoff):
    """A backoff that notes how long each retry waited."""

    waits: list[float] = field(
        default_factory=list, metadata=setting("the waits so far, in seconds", identity=False)
    )

    def wait(self, failures: int) -> float:
        """Return the seconds to wait, and note them."""
        seconds = Backoff.wait(self, failures)
        self.waits.append(seconds)
        return seconds


@naming_keys()
def open_text(settings: DataSettings, backoff: Backoff) -> TextSource:
    """Return the source of the documents that a configuration names."""
    options = ReadOptions(text_key=settings.text_key, on_bad=settings.on_bad)
    if settings.backend == "hf":
        dataset = HubDataset(
            id=settings.hf_dataset or "",
            config=settings.hf_name,
            split=settings.hf_split,
            revision=settings.hf_revision,
        )
        every = settings.state_update_interval
        return HubSource(dataset, options=options, backoff=backoff, state_every=every)
    if settings.local_text is not None:
        return InMemory([settings.local_text], name="data.local_text", options=options)
    files = settings.local_files or ()
    given = files if isinstance(files, str) else list(files)
    return open_source(given, text_key=settings.text_key, on_bad=settings.on_bad)
