"""Encode a batch, and a stretch of it by the reference too: a difference stops the build.

The stretch goes through the engine in the same call as the batch, since a call has its
price. It is 512 characters of a batch of about 2 MiB: one four-thousandth of the text, and
at the speed of the reference still one twentieth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenreel.seeds import derive_key
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import Encoded, Tokenizer
from tokenreel.text.tokenizers.engine import require_equal
from tokenreel.text.tokenizers.protocol import join
from tokenreel.text.tokenizers.referenced import ReferencedTokenizer

SAMPLE_CHARACTERS = 512

Place = Callable[[int], Provenance]


@dataclass(frozen=True, slots=True)
class EncodeAndCheck:
    """Encode with a tokenizer whose engine is looked after; `engine` is its name."""

    tokenizer: Tokenizer
    engine: str

    def texts(self, texts: list[str], *, place: Place) -> Encoded:
        """Encode texts; `place(i)` is where text i was read."""
        checked = self._checked
        if checked is None:
            return self.tokenizer.encode_batch(texts)
        number, start = _chosen(texts, place)
        stretch = texts[number][start : start + SAMPLE_CHARACTERS]
        return self._compared(checked.encode_batch([*texts, stretch]), stretch, place(number))

    def utf8(self, texts: list[bytes], *, place: Place) -> Encoded:
        """Encode texts that are given as UTF-8."""
        checked = self._checked
        if checked is None:
            if isinstance(self.tokenizer, ReferencedTokenizer):
                return self.tokenizer.encode_utf8(texts)
            return self.tokenizer.encode_batch([str(text, "utf-8") for text in texts])
        number, start = _chosen(texts, place)
        # Characters that are cut in two are left out at both ends.
        stretch = str(texts[number][start : start + SAMPLE_CHARACTERS], "utf-8", "ignore")
        encoded = checked.encode_utf8([*texts, stretch.encode()])
        return self._compared(encoded, stretch, place(number))

    @property
    def _checked(self) -> ReferencedTokenizer | None:
        if self.engine == "reference" or not isinstance(self.tokenizer, ReferencedTokenizer):
            return None
        return self.tokenizer

    def _compared(self, encoded: Encoded, stretch: str, place: Provenance) -> Encoded:
        """Return what comes before the stretch, if the reference gives the ids of the stretch."""
        last = len(encoded) - 1
        if isinstance(self.tokenizer, ReferencedTokenizer):
            require_equal(
                self.tokenizer.encode_by_reference([stretch]),
                join([encoded[last]]),
                names=[place],
                engine=self.engine,
                decode=self.tokenizer.decode,
            )
        stop = encoded.offsets[last]
        return Encoded(ids=encoded.ids[:stop], offsets=encoded.offsets[: last + 1])


def _chosen(texts: Sequence[str] | Sequence[bytes], place: Place) -> tuple[int, int]:
    """Return the number of a text and where in it, chosen by where the first was read."""
    key = derive_key("sample", str(place(0)))
    number = key % len(texts)
    return number, key % max(1, len(texts[number]) - SAMPLE_CHARACTERS)
