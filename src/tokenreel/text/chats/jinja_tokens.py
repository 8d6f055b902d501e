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
from collections.abc import Iterable, Mapping, Sequence
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
_KEEPS = (False, False)


class Written(Protocol):
    """A chat as text, with the control tokens in it: start and stop in characters, and string."""

    @property
    def text(self) -> str:
        """All of it, control tokens by their strings."""

    @property
    def controls(self) -> Sequence[tuple[int, int, str]]:
        """The control tokens, in order."""


_GAP = -(1 << 40)  # the code of blanks that a control token swallows


class Sheet:
    """Many chats end to end, cut into stretches: runs of text, control tokens, swallowed blanks.

    starts: where each stretch begins, in characters of all chats; it stops where the next begins.
    codes: the number of its text among those that are encoded, or ~id of its control token.
    chats: how many stretches come before each chat. texts: each different one once; those that
    are the first of their chat (`firsts`) may be encoded otherwise.
    """

    def __init__(self) -> None:
        self.size = 0
        self.starts: list[int] = []
        self.codes: list[int] = []
        self.chats: list[int] = []
        self.texts: list[str] = []
        self.firsts: dict[str, int] = {}
        self.others: dict[str, int] = {}

    def number(self, text: str, numbers: dict[str, int]) -> int:
        """Return the number of a text, by `firsts` or `others`."""
        number = numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


class Cutter:
    """Cut rendered chats into stretches, and encode them, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Some definitions treat the beginning of an input in a way of its own.
        self._continued: Tokenizer = getattr(tokenizer, "continued", tokenizer)
        self._strips: Mapping[str, tuple[bool, bool]] = getattr(tokenizer, "control_strips", {})
        self._control_ids = dict(tokenizer.control_ids)
        self._heads: dict[tuple[bool, str], tuple[int, bytes | None]] = {}

    def cut(self, output: Written, sheet: Sheet) -> int:
        """Put the stretches of a chat on a sheet; return where it begins there."""
        text, base, done = output.text, sheet.size, 0
        sheet.chats.append(len(sheet.codes))
        add_start, add_code = sheet.starts.append, sheet.codes.append
        numbers = sheet.others if self._continued is self._tokenizer else sheet.firsts
        strips, ids = self._strips, self._control_ids
        for start, stop, token in output.controls:
            lstrip, rstrip = strips.get(token, _KEEPS) if strips else _KEEPS
            blanks = _BLANKS_BEHIND.search(text, done, start) if lstrip else None
            until = blanks.start() if blanks else start
            if done < until:
                add_start(base + done)
                add_code(sheet.number(text[done:until], numbers))
            numbers = sheet.others
            if until < start:
                add_start(base + until)
                add_code(_GAP)
            add_start(base + start)
            add_code(~ids[token])
            done = stop
            if rstrip and (blanks := _BLANKS_BEFORE.match(text, stop)):
                add_start(base + stop)
                add_code(_GAP)
                done = blanks.end()
        if done < len(text):
            add_start(base + done)
            add_code(sheet.number(text[done:], numbers))
        sheet.size += len(text)
        return base

    def encode(self, sheet: Sheet) -> Tokens:
        """Encode a sheet: every different text once."""
        if self._continued is self._tokenizer:
            return Tokens(self, sheet, self._tokenizer.encode_batch(sheet.texts))
        parts: list[np.ndarray | None] = [None] * len(sheet.texts)
        for chosen, tokenizer in (
            (sheet.firsts, self._tokenizer),
            (sheet.others, self._continued),
        ):
            encoded = tokenizer.encode_batch(list(chosen))
            for place, number in enumerate(chosen.values()):
                parts[number] = encoded[place]
        return Tokens(self, sheet, _joined([part for part in parts if part is not None]))

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
        num_tokens, data = self.head(text[:place], is_first=is_first)
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

    def head(self, head: str, *, is_first: bool) -> tuple[int, bytes | None]:
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


class Tokens:
    """The ids of a sheet, and places in its text as places among them.

    ids: uint32 [total]; offsets: where each chat begins, int64 [chats + 1].
    """

    def __init__(self, cutter: Cutter, sheet: Sheet, encoded: Encoded) -> None:
        self._cutter = cutter
        self._encoded = encoded
        self._texts = sheet.texts
        self._is_first = set(sheet.firsts.values())
        self._starts = np.array([*sheet.starts, sheet.size], np.int64)
        self._codes = codes = np.array([*sheet.codes, _GAP], np.int64)
        is_text, is_control = codes >= 0, (codes < 0) & (codes > _GAP)
        # Texts and control tokens lie in one array: each stretch is a range of it from its first.
        controls = ~codes[is_control]
        source = np.concatenate((encoded.ids, controls.astype(np.uint32)))
        firsts = np.zeros(len(codes), np.int64)
        firsts[is_text] = encoded.offsets[codes[is_text]]
        firsts[is_control] = len(encoded.ids) + np.arange(len(controls))
        lengths = is_control.astype(np.int64)
        lengths[is_text] = np.diff(encoded.offsets)[codes[is_text]]
        # The first token of each stretch, and the end; the last stretch is none.
        self._firsts = ends = np.concatenate(([0], np.cumsum(lengths[:-1])))
        # The n-th token is as far behind its stretch's first as n is behind the stretch's start.
        taken = np.repeat(firsts - ends, lengths) + np.arange(ends[-1])
        self.ids = source[taken].astype(np.uint32, copy=False)
        self.offsets = ends[[*sheet.chats, -1]]

    def around(self, places: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return how many tokens end at or before each place, and how many begin before it.

        Places are in characters of the sheet; so are the results in tokens of the sheet.
        """
        points = np.array(places, np.int64)
        numbers = np.searchsorted(self._starts, points, side="right") - 1
        ended = self._firsts[numbers]
        begun = ended.copy()
        inner = points - self._starts[numbers]
        codes = self._codes[numbers]
        begun += (inner > 0) & (codes < 0) & (codes > _GAP)
        # Places in a text, by the text before them: headers are few.
        in_text = np.flatnonzero((inner > 0) & (codes >= 0))
        heads: dict[tuple[bool, str], list[int]] = {}
        sizes = inner[in_text].tolist()
        for point, code, size in zip(in_text.tolist(), codes[in_text].tolist(), sizes, strict=True):
            head = self._texts[code][:size]
            heads.setdefault((code in self._is_first, head), []).append(point)
        for (is_first, head), where in heads.items():
            cuts = self._cut_behind(head, codes[where], is_first=is_first)
            ended[where] += cuts[:, 0]
            begun[where] += cuts[:, 1]
        return ended, begun

    def _cut_behind(self, head: str, numbers: np.ndarray, *, is_first: bool) -> np.ndarray:
        """Return how many tokens of each text end in its head, and begin in it: [texts, 2]."""
        ids, offsets = self._encoded.ids, self._encoded.offsets
        num_tokens, data = self._cutter.head(head, is_first=is_first)
        cuts = np.full((len(numbers), 2), num_tokens, np.int64)
        begins = offsets[numbers]
        is_known = (
            offsets[numbers + 1] - begins >= num_tokens
            if data is not None
            else np.zeros(len(numbers), bool)
        )
        if data is not None:
            expected = np.frombuffer(data, np.uint32)
            window = begins[is_known, None] + np.arange(num_tokens)  # [known, num_tokens]
            is_known[is_known] = (ids[window] == expected).all(axis=1)
        for row in np.flatnonzero(~is_known).tolist():
            number = int(numbers[row])
            cuts[row] = self._cutter.cut_ids(
                self._texts[number], self._encoded[number], len(head), is_first=is_first
            )
        return cuts


def turn_stops(starts: np.ndarray, num_turns: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return where turns stop that begin at `starts`: at the next of their chat, or with it.

    num_turns: of each chat; offsets: where each chat begins, and the end of the last.
    """
    stops = np.append(starts[1:], 0)[: len(starts)]
    has_turns = num_turns > 0
    stops[np.cumsum(num_turns)[has_turns] - 1] = offsets[1:][has_turns]
    return stops
