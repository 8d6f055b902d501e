"""Encode batches, and stretches of them by the reference too: a difference is a MismatchError.

The fixed sample by which an engine is chosen (engine.py) is no proof for the text that comes.
The stretches go through the engine in the same call as their batch, since a call has its
price; and to the reference all at once, which takes as long to get going as it takes for
them. A build checks its first batch and then every fourth, each of about 2 MiB, in four
stretches of 512 characters: one four-thousandth of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from tokenreel.seeds import derive_key
from tokenreel.text.tokenizers.engine import require_equal
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded, Tokenizer, join

STRETCH = 512  # characters, or bytes of UTF-8

Place = Callable[[int], object]  # where text i was read: a Provenance, or what str() shows as one


class CheckedEncoder:
    """Encode with a tokenizer, and compare stretches of the text with its reference.

    Of every `every`-th batch, beginning with the first, `stretches` stretches are compared.
    Nothing is compared where the reference itself does the work, or where the tokenizer is
    one's own and has no reference.
    """

    def __init__(self, tokenizer: Tokenizer, *, every: int = 4, stretches: int = 4) -> None:
        self._tokenizer = tokenizer
        self._every = every
        self._num_stretches = stretches
        self._checked: ReferencedTokenizer | None = None
        if isinstance(tokenizer, ReferencedTokenizer) and tokenizer.engine != "reference":
            self._checked = tokenizer
        self._batch_numbers = count()

    def texts(self, texts: list[str], *, place: Place) -> Encoded:
        """Encode texts; `place(i)` is where text i was read."""
        chosen = self._choose(texts, place)
        stretches = [texts[number][start : start + STRETCH] for number, start in chosen]
        encoded = self._tokenizer.encode_batch([*texts, *stretches])
        return self._compare(encoded, stretches, [place(number) for number, _ in chosen])

    def utf8(self, texts: list[bytes], *, place: Place) -> Encoded:
        """Encode texts that are given as UTF-8."""
        if not isinstance(self._tokenizer, ReferencedTokenizer):
            return self.texts([str(text, "utf-8") for text in texts], place=place)
        chosen = self._choose(texts, place)
        # Characters that are cut in two are left out at both ends.
        stretches = [
            str(texts[number][at : at + STRETCH], "utf-8", "ignore") for number, at in chosen
        ]
        encoded = self._tokenizer.encode_utf8([*texts, *(text.encode() for text in stretches)])
        return self._compare(encoded, stretches, [place(number) for number, _ in chosen])

    def _choose(
        self, texts: Sequence[str] | Sequence[bytes], place: Place
    ) -> list[tuple[int, int]]:
        """Return texts by number, and where in them, chosen by where the first was read."""
        if self._checked is None or next(self._batch_numbers) % self._every:
            return []
        keys = [derive_key("sample", str(place(0)), n) for n in range(self._num_stretches)]
        chosen = [(key % len(texts), key // len(texts)) for key in keys]
        return [(number, key % max(1, len(texts[number]) - STRETCH)) for number, key in chosen]

    def _compare(self, encoded: Encoded, stretches: list[str], places: list[object]) -> Encoded:
        """Return what comes before the stretches, if the reference gives their ids too."""
        if self._checked is None or not stretches:
            return encoded
        last = len(encoded) - len(stretches)
        require_equal(
            self._checked.encode_by_reference(stretches),
            join([encoded[number] for number in range(last, len(encoded))]),
            names=places,
            engine=self._checked.engine,
            decode=self._checked.decode,
        )
        return Encoded(
            ids=encoded.ids[: encoded.offsets[last]], offsets=encoded.offsets[: last + 1]
        )
