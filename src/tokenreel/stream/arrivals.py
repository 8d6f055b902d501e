"""Documents as they arrive: epoch after epoch, each with the place it stands at.

    source ─► Dealt (lane, held out) ─► Shuffled (keyed by seed and epoch) ─► Arrived …

Reading on from a place gives exactly the documents that would have come. It costs one
opening of the source and, with shuffling, reading one shuffle block again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from tokenreel.errors import InputError
from tokenreel.seeds import derive_key
from tokenreel.stream.deal import Deal, Dealt
from tokenreel.stream.place import Place
from tokenreel.stream.settings import DataSettings
from tokenreel.stream.told import told_in_keys
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.shuffle import Shuffled
from tokenreel.text.sources.source_protocol import Range, TextSource

STREAM = Range(kind="stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A document, the places before and after it, and the bad records on the way to it."""

    text: str
    provenance: Provenance
    place: Place
    after: Place
    skipped: int


class Arrivals:
    """The documents of one lane, from any place on."""

    def __init__(self, source: TextSource, deal: Deal, settings: DataSettings) -> None:
        self._dealt = Dealt(source, deal)
        self._deal = deal
        self._settings = settings

    def epochs(self, place: Place) -> Iterator[tuple[int, Iterator[Arrived]]]:
        """Yield each epoch's number and documents, the first one from the place on.

        The next epoch is only right when the one before has been read to its end.
        """
        for epoch in count(place.epoch):
            if epoch and not self._settings.repeat:
                return
            documents = self._epoch(place if epoch == place.epoch else Place(epoch=epoch))
            yield epoch, _told(documents)

    def _epoch(self, place: Place) -> Iterator[Arrived]:
        reader = self._ordered(place.epoch).read(STREAM, cursor=place.cursor)
        passed = 0
        for record in reader:
            # A place is always the one right after a document: from there on bad records are
            # met again and passed over again.
            skipped, passed = reader.skipped.count - passed, reader.skipped.count
            after = Place(epoch=place.epoch, number=place.number + 1, cursor=reader.cursor)
            yield Arrived(
                text=record.text or "",
                provenance=record.provenance,
                place=place,
                after=after,
                skipped=skipped,
            )
            place = after
        if not place.number:
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


def _told(documents: Iterator[Arrived]) -> Iterator[Arrived]:
    """Yield documents; an error on the way names keys of the configuration."""
    with told_in_keys():
        yield from documents


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
