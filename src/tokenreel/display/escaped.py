"""Text that stays text: on a page, and in a terminal.

Characters that could rearrange what stands around them (controls, direction marks) or that do not
show at all are given by a picture or their number.
"""

from __future__ import annotations

import re
import unicodedata

# Controls, formats (direction marks among them), separators of lines, what is not assigned.
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
PICTURES = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\0": "␀"}
BLANKS = re.compile(" +")
# What html.escape does; its module takes as long to load as all of this package.
MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def printed(value: object) -> str:
    """Return text as HTML.

    >>> printed("<b> & \\u202e")
    '&lt;b&gt; &amp; \\\\u202e'
    """
    return visible(str(value)).translate(MARKUP)


def visible(text: str) -> str:
    """Return text in which every character shows, and none commands.

    >>> print(visible("a\\x1b[31m\\n\\u202e"))
    a\\u001b[31m⏎\\u202e
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def token_html(text: str) -> str:
    """Return the text of a token as HTML; blanks are marked, of every kind.

    >>> token_html(" if a<b\\xa0")
    '<i> </i>if<i> </i>a&lt;b\\\\u00a0'
    """
    shown = "".join(
        _number(letter) if letter != " " and unicodedata.category(letter) == "Zs" else letter
        for letter in visible(text)
    )
    return BLANKS.sub(lambda blanks: f"<i>{blanks[0]}</i>", shown.translate(MARKUP))


def _visible(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    if character in PICTURES:
        return PICTURES[character]
    return _number(character) if unicodedata.category(character) in HIDDEN else character


def _number(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
