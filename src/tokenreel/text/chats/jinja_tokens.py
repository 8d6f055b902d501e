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


@dataclass(frozen=True, slots=True)
class Cut:
    """A chat in stretches: runs of text, and control tokens.

    starts, stops: in characters; codes: the number of the text among those that are encoded, or
    the id of the control token as -1 - id.
    """

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def add(self, start: int, stop: int, code: int) -> None:
        """Add a stretch behind the others."""
        self.starts.append(start)
        self.stops.append(stop)
        self.codes.append(code)


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
        self._codes = {token: -1 - id for token, id in tokenizer.control_ids.items()}
        self._heads: dict[tuple[bool, str], tuple[int, bytes | None]] = {}

    @property
    def has_first(self) -> bool:
        """Whether the first text of an input is encoded in a way of its own."""
        return self._continued is not self._tokenizer

    def code(self, token: str) -> int:
        """Return what stands for a control token in a Cut."""
        return self._codes[token]

    def cut(self, output: Written, texts: Texts) -> Cut:
        """Return the stretches of a chat, in order; their texts go to `texts`."""
        text, cut, done = output.text, Cut(), 0
        is_first, strips = self.has_first, self._strips
        for start, stop, token in output.controls:
            lstrip, rstrip = strips.get(token, (False, False)) if strips else (False, False)
            until = start
            if lstrip and (blanks := _BLANKS_BEHIND.search(text, done, start)):
                until = blanks.start()
            if done < until:
                number = texts.add(text[done:until], is_first=is_first and done == 0)
                cut.add(done, until, number)
            cut.add(start, stop, self._codes[token])
            done = stop
            if rstrip and (blanks := _BLANKS_BEFORE.match(text, stop)):
                done = blanks.end()
        if done < len(text):
            cut.add(done, len(text), texts.add(text[done:], is_first=is_first and done == 0))
        return cut

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

    def head_ids(self, head: str, *, is_first: bool) -> np.ndarray | None:
        """Return the ids of the beginning of a stretch, if they say it to the letter."""
        data = self._head(head, is_first=is_first)[1]
        return None if data is None else np.frombuffer(data, np.uint32)

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
        cut: Cut,
        *,
        encoded: Encoded,
        lengths: Sequence[int],
    ) -> None:
        self._cutter = cutter
        self._text = output.text
        self._cut = cut
        self._encoded = encoded
        sizes = [1 if code < 0 else lengths[code] for code in cut.codes]
        self._firsts = [0, *accumulate(sizes)]

    @property
    def num_tokens(self) -> int:
        """How many tokens the chat has."""
        return self._firsts[-1]

    def around(self, place: int) -> tuple[int, int]:
        """Return how many tokens end at or before a place, and how many begin before it."""
        number = bisect_right(self._cut.starts, place) - 1
        if number < 0:
            return 0, 0
        start, stop, code = (
            of[number] for of in (self._cut.starts, self._cut.stops, self._cut.codes)
        )
        first = self._firsts[number]
        if place == start:
            return first, first
        if place >= stop:
            return self._firsts[number + 1], self._firsts[number + 1]
        if code < 0:
            return first, first + 1
        ended, begun = self._cutter.cut_ids(
            self._text[start:stop], self._encoded[code], place - start, is_first=start == 0
        )
        return first + ended, first + begun

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the tokens all of whose characters lie in [start, stop)."""
        first, last = self.around(start)[1], self.around(stop)[0]
        return first, max(first, last)


def assemble(cuts: Sequence[Cut], encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all chats end to end, uint32 [total], and where each begins [chats + 1]."""
    codes = np.fromiter((code for cut in cuts for code in cut.codes), np.int64)
    is_text = codes >= 0
    controls = -1 - codes[~is_text]
    # Texts and control tokens lie in one array: each stretch is a range [first, first + length).
    source = np.concatenate((encoded.ids, controls.astype(np.uint32)))
    firsts = np.empty(len(codes), np.int64)
    firsts[is_text] = encoded.offsets[codes[is_text]]
    firsts[~is_text] = len(encoded.ids) + np.arange(len(controls))
    lengths = np.ones(len(codes), np.int64)
    lengths[is_text] = np.diff(encoded.offsets)[codes[is_text]]
    ends = np.concatenate(([0], np.cumsum(lengths)))
    # The n-th token is the one at its stretch's first, as far behind it as n is behind the start.
    taken = np.repeat(firsts - ends[:-1], lengths) + np.arange(ends[-1])
    bounds = np.cumsum([0, *(len(cut.codes) for cut in cuts)])
    return source[taken].astype(np.uint32, copy=False), ends[bounds]
