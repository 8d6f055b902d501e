"""Tokens in plain characters, where there is no colour: a log, a pipe, a repr.

    ⟦trained⟧  ◆<|control|>  │ where a document begins  ░3 padding

Brackets and diamonds that stand in the text itself are given by their number, so that no text can
look trained, or like a control id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

BRACKETS = ("⟦", "⟧")
DIAMOND = "◆"
BAR = "│"
HATCH = "░"
OURS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in (*BRACKETS, DIAMOND)})


class Shown(Protocol):
    """What is drawn: a chip, or a run of tokens."""

    @property
    def text(self) -> str:
        """What it says."""

    @property
    def is_control(self) -> bool:
        """Whether it is a control id."""

    @property
    def is_trained(self) -> bool:
        """Whether the model is asked for it."""


def unmarked(text: str) -> str:
    """Return text that has none of our brackets and diamonds.

    >>> print(unmarked("◆<|im_end|>"))
    \\u25c6<|im_end|>
    """
    return text.translate(OURS)


def bracketed(shown: Iterable[tuple[str, Shown]]) -> str:
    """Return the texts of tokens: brackets around what is trained, diamonds before control ids.

    The texts are given beside what they are of, ready to be printed.
    """
    parts, is_open = [], False
    for text, token in shown:
        if token.is_trained != is_open:
            parts.append(BRACKETS[is_open])
            is_open = token.is_trained
        begins = f"{BAR} " * getattr(token, "begins", False)
        parts.append(f"{begins}{DIAMOND * token.is_control}{text}")
    return "".join(parts) + BRACKETS[1] * is_open
