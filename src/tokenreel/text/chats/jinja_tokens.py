"""Rendered chats as ids, and places in their text as places among the ids.

The text between two control tokens is encoded as one stretch, whether template or content wrote
it, so the ids are those that the model's tokenizer gives for the whole. Control tokens swallow
the blanks beside them where their tokenizer says so (`lstrip`, `rstrip`). All stretches of all
chats are encoded in one call, each different one once.

A span of characters is a span of tokens by one rule: a token belongs to it if all its characters
do. A token that a tokenizer makes of both a header's last and an answer's first characters
("\\n" and "\\n", say) is therefore not trained, since the header is in it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded, Tokenizer

_CACHED_CHARACTERS = 64
_CACHED_HEADS = 4096
# White_Space of Unicode, which the tokenizers library strips; Python's isspace has four more.
_BLANK = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_BLANKS_BEHIND = re.compile(f"[{_BLANK}]+$")
_BLANKS_BEFORE = re.compile(f"[{_BLANK}]+")


class Written(Protocol):
    """A chat as text, with the control tokens in it: start and stop in characters, and string."""

    @property
    def text(self) -> str:
        """All of it, control tokens by their strings."""

    @property
    def controls(self) -> Sequence[tuple[int, int, str]]:
        """The control tokens, in order."""


@dataclass(slots=True)
class Stretch:
    """A run of text, or one control token where `number` is None; `start` and `stop` in characters.

    number: of the text among those that are encoded; id: of the control token.
    """

    start: int
    stop: int
    number: int | None = None
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The stretches of many chats, each different text once."""

    numbers: dict[tuple[bool, str], int] = field(default_factory=dict)

    def add(self, text: str, *, is_first: bool) -> int:
        """Return the number of a text; the first of an input may be encoded otherwise."""
        return self.numbers.setdefault((is_first, text), len(self.numbers))


class Cutter:
    """Cut rendered chats into stretches, and encode them, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Some definitions treat the beginning of an input in a way of its own.
        self._continued: Tokenizer = getattr(tokenizer, "continued", tokenizer)
        self._strips: Mapping[str, tuple[bool, bool]] = getattr(tokenizer, "control_strips", {})
        self._control_ids = dict(tokenizer.control_ids)
        self._heads: dict[tuple[bool, str], tuple[int, bytes | None]] = {}

    def cut(self, output: Written, texts: Texts) -> list[Stretch]:
        """Return the stretches of a chat, in order; their texts go to `texts`."""
        text, stretches, done = output.text, [], 0
        is_first = self._continued is not self._tokenizer
        strips, ids = self._strips, self._control_ids
        for start, stop, token in output.controls:
            lstrip, rstrip = strips.get(token, (False, False)) if strips else (False, False)
            until = start
            if lstrip and (blanks := _BLANKS_BEHIND.search(text, done, start)):
                until = blanks.start()
            if done < until:
                number = texts.add(text[done:until], is_first=is_first and done == 0)
                stretches.append(Stretch(done, until, number))
            stretches.append(Stretch(start, stop, None, ids[token]))
            done = stop
            if rstrip and (blanks := _BLANKS_BEFORE.match(text, stop)):
                done = blanks.end()
        if done < len(text):
            number = texts.add(text[done:], is_first=is_first and done == 0)
            stretches.append(Stretch(done, len(text), number))
        return stretches

    def encode(self, texts: Texts) -> Encoded:
        """Encode all texts, in the order of their numbers."""
        if self._continued is self._tokenizer:
            return self._tokenizer.encode_batch([text for _, text in texts.numbers])
        parts: list[np.ndarray | None] = [None] * len(texts.numbers)
        for first, tokenizer in ((True, self._tokenizer), (False, self._continued)):
            chosen = [n for (is_first, _), n in texts.numbers.items() if is_first == first]
            named = {n: text for (_, text), n in texts.numbers.items()}
            encoded = tokenizer.encode_batch([named[number] for number in chosen])
            for place, number in enumerate(chosen):
                parts[number] = encoded[place]
        return _joined([part for part in parts if part is not None])

    def encode_one(self, text: str, *, is_first: bool) -> np.ndarray:
        """Return the ids of one text, which follows a control token unless it is the first."""
        if not text:
            return np.empty(0, np.uint32)
        return (self._tokenizer if is_first else self._continued).encode_batch([text]).ids

    def encode_following(self, texts: Sequence[str]) -> Encoded:
        """Encode texts each of which follows a control token."""
        return self._continued.encode_batch(texts)

    def spells(self, ids: np.ndarray, text: str) -> bool:
        """Tell whether ids say a text to the letter."""
        return self._tokenizer.decode(ids) == text

    def strips(self, tokens: Iterable[str]) -> bool:
        """Tell whether one of these control tokens swallows the blanks beside it."""
        return any(any(self._strips.get(token, ())) for token in tokens)

    def cut_ids(self, text: str, ids: np.ndarray, place: int, *, is_first: bool) -> tuple[int, int]:
        """Return how many tokens of a stretch end at or before a place, and begin before it."""
        num_tokens, data = self._head(text[:place], is_first=is_first)
        if data is not None and ids[:num_tokens].tobytes() == data:
            return num_tokens, num_tokens
        tokenizer = self._tokenizer if is_first else self._continued
        offsets = getattr(tokenizer, "offsets", None)
        found = None if offsets is None else offsets(text, ids)
        if found is not None:
            starts, stops = found
            return int((stops <= place).sum()), int((starts < place).sum())
        rest = tokenizer.encode_batch([text[place:]]).ids
        head = tokenizer.encode_batch([text[:place]]).ids
        if np.array_equal(
            np.concatenate((head, rest)), ids
        ):  # both sides know nothing of each other
            return len(head), len(head)
        return _cut_by_decoding(self._tokenizer, text, ids, place)

    def _head(self, head: str, *, is_first: bool) -> tuple[int, bytes | None]:
        """Return the ids of the beginning of a stretch: how many, and their bytes.

        The bytes are None where the ids do not say the text to the letter, so that nobody knows
        whether they end where it does.
        """
        known = self._heads.get((is_first, head))
        if known is not None:
            return known
        tokenizer = self._tokenizer if is_first else self._continued
        ids = tokenizer.encode_batch([head]).ids
        is_exact = self._tokenizer.decode(ids) == head
        made = len(ids), ids.tobytes() if is_exact else None
        if len(head) <= _CACHED_CHARACTERS:
            if len(self._heads) >= _CACHED_HEADS:
                self._heads.clear()
            self._heads[is_first, head] = made
        return made


def _joined(parts: Sequence[np.ndarray]) -> Encoded:
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
    ids = np.concatenate([np.empty(0, np.uint32), *parts]).astype(np.uint32, copy=False)
    return Encoded(ids=ids, offsets=offsets)


def _cut_by_decoding(tokenizer: Any, text: str, ids: np.ndarray, place: int) -> tuple[int, int]:
    """Find a place by the text of ever more tokens, where a tokenizer tells no offsets."""
    whole = tokenizer.decode(ids)
    dropped = len(text) - len(whole)
    if not text.endswith(whole) or text[:dropped].strip(" "):
        raise InputError(
            "the place where an answer begins cannot be found: the tokenizer changes the text",
            remedy="give the tokenizer as a tokenizer.json",
        )
    low, high = 0, len(ids)
    while low < high:  # the fewest tokens that say all before the place
        middle = (low + high) // 2
        if dropped + len(tokenizer.decode(ids[:middle])) >= place:
            high = middle
        else:
            low = middle + 1
    said = tokenizer.decode(ids[:low])
    return (
        (low, low)
        if text[dropped : dropped + len(said)] == said and (dropped + len(said) == place)
        else (low - 1, low)
    )


class Places:
    """Places in the text of one chat as places among its tokens.

    lengths: how many tokens each text has, by its number.
    """

    def __init__(
        self,
        cutter: Cutter,
        output: Written,
        stretches: Sequence[Stretch],
        *,
        encoded: Encoded,
        lengths: Sequence[int],
    ) -> None:
        self._cutter = cutter
        self._text = output.text
        self._stretches = stretches
        self._encoded = encoded
        self._starts = [stretch.start for stretch in stretches]
        sizes = [1 if s.number is None else lengths[s.number] for s in stretches]
        self._firsts = [0, *accumulate(sizes)]

    @property
    def num_tokens(self) -> int:
        """How many tokens the chat has."""
        return self._firsts[-1]

    def around(self, place: int) -> tuple[int, int]:
        """Return how many tokens end at or before a place, and how many begin before it."""
        number = bisect_right(self._starts, place) - 1
        if number < 0:
            return 0, 0
        stretch, first = self._stretches[number], self._firsts[number]
        if place == stretch.start:
            return first, first
        if place >= stretch.stop:
            return self._firsts[number + 1], self._firsts[number + 1]
        if stretch.number is None:
            return first, first + 1
        ended, begun = self._cutter.cut_ids(
            self._text[stretch.start : stretch.stop],
            self._encoded[stretch.number],
            place - stretch.start,
            is_first=stretch.start == 0,
        )
        return first + ended, first + begun

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the tokens all of whose characters lie in [start, stop)."""
        first, last = self.around(start)[1], self.around(stop)[0]
        return first, max(first, last)


def assemble(chats: Sequence[Sequence[Stretch]], encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all chats end to end, uint32 [total], and where each begins [chats + 1]."""
    flat = [stretch for chat in chats for stretch in chat]
    numbers = np.array([-1 if s.number is None else s.number for s in flat], np.int64)
    controls = np.array([stretch.id for stretch in flat if stretch.number is None], np.uint32)
    is_text = numbers >= 0
    # Texts and control tokens lie in one array: each stretch is a range [first, first + length).
    source = np.concatenate((encoded.ids, controls))
    firsts = np.empty(len(flat), np.int64)
    firsts[is_text] = encoded.offsets[numbers[is_text]]
    firsts[~is_text] = len(encoded.ids) + np.arange(len(controls))
    lengths = np.ones(len(flat), np.int64)
    lengths[is_text] = np.diff(encoded.offsets)[numbers[is_text]]
    ends = np.concatenate(([0], np.cumsum(lengths)))
    # The n-th token is the one at its stretch's first, as far behind it as n is behind the start.
    taken = np.repeat(firsts - ends[:-1], lengths) + np.arange(ends[-1])
    return source[taken].astype(np.uint32, copy=False), ends[np.cumsum([0, *map(len, chats)])]
