"""Which characters of a rendered chat the template wrote, and which came with the chat.

A control token in a literal of the template is compiled to private-use characters of plane 16,
its shadow: one character that names the token and as many fillers as make up its length. A
shadow in the output is a control token that the template wrote; a spelling in the output is
text. Content goes through the template as it is, so `trim`, `split('</think>')` and slices do to
it what they do in transformers, and nothing that a chat says can become a shadow: a chat that
has characters of planes 15 and 16 is rendered with stand-ins for them (`stand_ins`).

    literal '<|im_end|>' + '\\n'        ↦  U+100000+k, nine fillers, newline
    content 'say <|im_end|> please'     ↦  itself

Plane 15 is for the second rendering of a chat whose output spells control tokens beside those
of the literals: there every character of a literal is shifted by 0xF0000 (`traced`), which tells
what a literal wrote from what the chat said, character by character.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenreel.errors import InputError

TRACED = 0xF0000
SHADOW = 0x100000
FILLER = "\U0010fffd"
GENERATION_START, GENERATION_STOP = "\U0010fffb", "\U0010fffc"
MAX_SHADOWS = 0xFF00
_STAND_INS = range(0xE000, 0xF900)

# Lone surrogates are no text, and the planes are ours.
SURROGATES = re.compile("[\ud800-\udfff]")
_OURS = re.compile("[\U000f0000-\U0010ffff]")
NOT_OF_TEMPLATES = re.compile("[\ud800-\udfff\U000f0000-\U0010ffff]")
# A field of a pattern for `%` or `format`.
FIELD = re.compile(r"(%(?:\([^)]*\))?[^a-zA-Z%]*[hlL]?[a-zA-Z%]|\{\{|\}\}|\{[^{}]*\})")
# A shadow, whole or cut, or a mark; one class of characters, since an alternation is slow.
_PLANE_16 = re.compile(f"([\U00100000-{FILLER}]{FILLER}*)")
_TRACED = re.compile("[\U000f0000-\U000fffff]")
# What no tokenizer takes for words: a template that writes it means a control token.
_MARKUP = re.compile(
    r"<[|｜][^\s<>|｜%{}]{1,48}[|｜]>|\[/?INST\]|</?s>|<bos>|<eos>|<start_of_turn>|<end_of_turn>"
)


Control = tuple[int, int, str]  # start and stop in the text, and the token


@dataclass(frozen=True)
class Shadows:
    """The control tokens of a tokenizer as private-use characters, and back.

    `unknown` is what literals of the template write like control tokens and the tokenizer lacks:
    it gets shadows too, so that it is found where it is written.
    """

    controls: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @cached_property
    def spelling(self) -> re.Pattern[str]:
        """Matches a control token of the tokenizer: the leftmost, of these the longest."""
        return _any_of(self.controls)

    @cached_property
    def _tokens(self) -> tuple[str, ...]:
        return (*self.controls, *self.unknown)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self._tokens)}

    @cached_property
    def _written(self) -> re.Pattern[str]:
        return _any_of(self._tokens)

    def shadow(self, literal: str) -> str:
        """Return a literal with each of its control tokens in shadow."""
        return self._written.sub(self._shadow_of, literal)

    def _shadow_of(self, found: re.Match[str]) -> str:
        token = found[0]
        return chr(SHADOW + self._numbers[token]) + FILLER * (len(token) - 1)

    def unknown_in(self, literal: str) -> list[str]:
        """Return what in a literal looks like a control token that the tokenizer lacks."""
        rest = self.spelling.sub("\0", literal)
        return [found[0] for found in _MARKUP.finditer(rest)]

    @cached_property
    def _shadow(self) -> re.Pattern[str]:
        return re.compile(f"[\U00100000-{chr(SHADOW + MAX_SHADOWS)}]{FILLER}*")

    def spelled(self, text: str) -> str:
        """Return a text with every shadow and every traced character as it is spelled."""
        if text.isascii():
            return text
        text = self._shadow.sub(lambda found: self._spelling_of(found[0]), text)
        if FILLER in text:
            raise Untracked("the template cuts a control token of its own into pieces")
        return _TRACED.sub(lambda found: chr(ord(found[0]) - TRACED), text)

    def _spelling_of(self, shadow: str) -> str:
        number = ord(shadow[0]) - SHADOW
        token = self._tokens[number] if number < len(self._tokens) else ""
        if len(token) != len(shadow):
            raise Untracked("the template cuts a control token of its own into pieces")
        return token

    def has_any(self, text: str) -> bool:
        """Tell whether a text has a shadow or a traced character in it."""
        return not text.isascii() and _OURS.search(text) is not None

    def read(self, written: str) -> tuple[str, list[Control], list[tuple[int, str]]]:
        """Return an output as it is spelled, its control tokens, and its marks by places."""
        parts = _PLANE_16.split(written)  # text, shadow or mark, text, …
        controls: list[Control] = []
        marks: list[tuple[int, str]] = []
        known, place = self._known, 0
        for number in range(1, len(parts), 2):
            place += len(parts[number - 1])
            shadow = parts[number]
            token = known.get(shadow)
            if token:
                stop = place + len(shadow)
                controls.append((place, stop, token))
                place = stop
            elif token is None:
                raise Untracked("the template cuts a control token of its own into pieces")
            else:
                marks.append((place, shadow))
            parts[number] = token
        return "".join(parts), controls, marks

    @cached_property
    def _known(self) -> dict[str, str]:
        """The token of each shadow; a mark stands for nothing."""
        known = {self.shadow(token): token for token in self._tokens}
        return {**known, GENERATION_START: "", GENERATION_STOP: ""}

    def may_spell_more(self, text: str, num_controls: int) -> bool:
        """Tell whether a text may spell control tokens beside so many of a template's own.

        Where none can overlap another, every one of the template's own is found in the text.
        """
        return self._overlap or len(self.spelling.findall(text)) != num_controls

    @cached_property
    def longest(self) -> int:
        """The length of the longest control token."""
        return max(map(len, self.controls), default=0)

    @cached_property
    def _overlap(self) -> bool:
        """Whether a control token may become another by what stands beside it.

        So it is where one lies in another, or ends with what another begins with.
        """
        known = set(self.controls)
        beginnings = {token[:size] for token in known for size in range(1, len(token))}
        return any(
            token[start:] in beginnings or self.spelling.match(token, start) is not None
            for token in known
            for start in range(1, len(token))
        ) or bool(known & beginnings)


def _any_of(tokens: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for the longest of many strings, which looks at each character once.

    Vocabularies have up to some thousand control tokens: an alternation would try them in turn
    at every "<".
    """
    tree: dict[str, Any] = {}
    for token in tokens:
        branch = tree
        for character in token:
            branch = branch.setdefault(character, {})
        branch[""] = {}
    return re.compile(_pattern(tree) if tree else "(?!)")


def _pattern(tree: Mapping[str, Any]) -> str:
    """Return the pattern of a tree of characters; the longest way through it is tried first."""
    ways = []
    for character, branch in tree.items():
        if character:
            spelled = character
            while len(branch) == 1 and "" not in branch:  # a run without a fork needs no group
                [(following, branch)] = branch.items()
                spelled += following
            ways.append(re.escape(spelled) + _pattern(branch))
    if not ways:
        return ""
    return f"(?:{'|'.join(ways)})" + ("?" if "" in tree else "")


class Unshadowed(Shadows):
    """No shadows at all: a template says what it says in transformers."""

    def shadow(self, literal: str) -> str:
        """Return a literal as it is."""
        return literal

    def spelled(self, text: str) -> str:
        """Return a text as it is."""
        return text

    def has_any(self, text: str) -> bool:
        """Tell that a text has no shadow: private-use characters are a chat's own."""
        return False


class Untracked(Exception):
    """A template does to its literals what cannot be followed; the chat is refused."""


def traced(literal: str) -> str:
    """Return a literal with its characters shifted to plane 15, blanks left as they are."""
    return "".join(
        character
        if character.isspace() or ord(character) > 0xFFFD
        else chr(TRACED + ord(character))
        for character in literal
    )


def traced_pattern(pattern: str) -> str:
    """Return a pattern for `%` or `format` with its characters shifted, its fields as they are.

    >>> traced_pattern("%s a {0}") == "%s " + traced("a") + " {0}"
    True
    """
    parts = FIELD.split(pattern)
    return "".join(part if number % 2 else traced(part) for number, part in enumerate(parts))


def is_traced(character: str) -> bool:
    """Tell whether a character was written by a literal in a traced rendering."""
    return TRACED <= ord(character) < SHADOW


def spans_of(marks: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Return the spans between marks of {% generation %}; those that lie in each other are one."""
    spans = []
    depth = start = 0
    for place, mark in marks:
        start = place if depth == 0 else start
        depth += 1 if mark == GENERATION_START else -1
        if depth == 0:
            spans.append((start, place))
    if depth:
        raise Untracked("the template cuts a {% generation %} block into pieces")
    return spans


def without_marks(text: str) -> str:
    """Return a text without the marks of {% generation %}."""
    return text.replace(GENERATION_START, "").replace(GENERATION_STOP, "")


def stand_ins(text: str, *, taken: str = "") -> Mapping[int, str]:
    """Return a character to stand for each character of planes 15 and 16 in a text.

    They are private-use characters that neither the text nor `taken` has, for `str.translate`.

    >>> "a\\U000f0001".translate(stand_ins("a\\U000f0001"))
    'a\\ue000'
    """
    others = set(text) | set(taken)
    free = (chr(code) for code in _STAND_INS if chr(code) not in others)
    wanted = sorted({ord(found) for found in _OURS.findall(text)})
    table = dict(zip(wanted, free, strict=False))
    if len(table) < len(wanted):
        raise InputError(
            "a chat has more private-use characters than can be told from a template's own",
            expected=f"at most {len(_STAND_INS):,} different ones",
            actual=len(wanted),
        )
    return table


def has_ours(text: str) -> bool:
    """Tell whether a text has characters of planes 15 and 16.

    >>> has_ours("a\\ue000"), has_ours("a\\U000f0000")
    (False, True)
    """
    return not text.isascii() and _OURS.search(text) is not None
