"""Chats as text by a template of plain data, and that text as ids: the way for every template.

A chat is written out with its control tokens, which are known by their places; what lies between
two of them is one stretch of text (jinja_tokens.py encodes it). Places in the text become places
among the tokens by the rule of that module: a token is trained if all its characters are.

Costs some ten microseconds a message. Templates in which every content stands between control
tokens of its own turn go a way that is several times faster, with the same result
(token_layout.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tokenreel.text.chats.jinja_tokens import Cutter, Sheet, turn_stops
from tokenreel.text.chats.template import Control, Name, Parts, Template, Text
from tokenreel.text.turns import TURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message as a template takes it: its role, its content, and its name if it has one."""

    role: str
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """A chat written out: its text, its control tokens, and four places for each turn.

    places: where the turn begins, where its trained span begins and stops, where the turn stops.
    """

    text: str
    controls: Sequence[tuple[int, int, str]]
    places: Sequence[tuple[int, int, int, int]]


@dataclass(slots=True)
class _Pen:
    """What is written so far, and where it ends."""

    place: int = 0
    pieces: list[str] = field(default_factory=list)
    controls: list[tuple[int, int, str]] = field(default_factory=list)

    def add_text(self, text: str) -> int:
        """Write a text and return the place behind it."""
        self.pieces.append(text)
        self.place += len(text)
        return self.place

    def add(self, parts: Parts, *, name: str | None = None) -> int:
        """Write parts and return the place behind them; without a name, its part is nothing."""
        for part in parts:
            if isinstance(part, Control):
                start = self.place
                self.controls.append((start, self.add_text(part.control), part.control))
            elif isinstance(part, Text):
                self.add_text(part.text)
            elif isinstance(part, Name) and name is not None:
                self.add_text(part.name + name)
        return self.place


def write(
    chat: Sequence[Said], template: Template, *, has_prompt: bool = False, is_open: bool = False
) -> Writing:
    """Write a chat out; with a prompt, the header of the next answer follows.

    is_open: nothing is written behind the text of the last message.
    """
    headers, pen, places = dict(template.headers), _Pen(), []
    pen.add(template.preamble)
    for number, said in enumerate(chat, start=1):
        start = pen.place
        first = pen.add(headers[said.role], name=said.name)
        last = pen.add_text(said.content)
        if not is_open or number < len(chat):
            last = pen.add(template.end_of(said.role))
            pen.add(template.tail)
        places.append((start, first, last, pen.place))
    if has_prompt:
        pen.add(headers["assistant"])
    return Writing(text="".join(pen.pieces), controls=pen.controls, places=places)


def encode_writings(
    writings: Sequence[Writing], cutter: Cutter
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of all chats, where each begins [chats + 1], and the places of the turns.

    The places are those of the writings, in tokens of their chat: int64 [turns, 4].
    """
    sheet = Sheet()
    bases = [cutter.cut(writing, sheet) for writing in writings]
    tokens = cutter.encode(sheet)
    ended, begun = tokens.around(
        [
            base + place
            for base, writing in zip(bases, writings, strict=True)
            for turn in writing.places
            for place in turn[:3]
        ]
    )
    # A token on both sides of a turn's beginning belongs to the turn before.
    starts, firsts, _ = begun.reshape(-1, 3).T
    lasts = np.maximum(firsts, ended.reshape(-1, 3)[:, 2])
    num_turns = np.array([len(writing.places) for writing in writings], np.int64)
    stops = turn_stops(starts, num_turns, tokens.offsets)
    places = np.stack((starts, firsts, lasts, stops), axis=1)
    places -= np.repeat(tokens.offsets[:-1], num_turns)[:, None]
    return tokens.ids, tokens.offsets, places


def turns_at(places: np.ndarray, roles: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the TURN records of turns by their four places, in tokens of their chat."""
    start, first, last, stop = places.T
    turns = np.zeros(len(places), TURN)
    turns["start"], turns["length"] = start, stop - start
    turns["head"], turns["tail"] = first - start, stop - last
    turns["weight"], turns["role"] = weights, roles
    return turns
