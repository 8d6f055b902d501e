"""Which strings are control tokens.

DEFAULT_SPECIALS are those of the tokenizer of bytes and of a tokenizer trained here: the end
of a document, and begin and end of a turn in the chat template `chatml`. NGPT_SPECIALS are
the four of contracts 001 and 002, under their short names, for `niels_gpt` alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

NGPT_SPECIALS = {
    "sys": "<|ngpt_sys_84a5023f67d74cf29cc4001becde983c|>",
    "usr": "<|ngpt_usr_84a5023f67d74cf29cc4001becde983c|>",
    "asst": "<|ngpt_asst_84a5023f67d74cf29cc4001becde983c|>",
    "eot": "<|ngpt_eot_84a5023f67d74cf29cc4001becde983c|>",
}
END_OF_TEXT = "<|endoftext|>"
SHOWN_CONTROLS = 10  # in a message
DEFAULT_SPECIALS = (END_OF_TEXT, "<|im_start|>", "<|im_end|>")


def looks_like_structure(token: str) -> bool:
    """Tell markup from words: True if the token has a character no plain word or blank has.

    Vocabularies add tokens for two reasons: as markup, such as `<tool_call>`, which
    text must not be able to write, and as words or runs of blanks that are to be one
    token, which only text can write. Letters, digits, marks, pictures and blanks
    (SentencePiece's U+2581 among them) make words; anything else makes markup.

    >>> [looks_like_structure(token) for token in ("<tool_call>", "[INST]", "covid19", "    ")]
    [True, True, False, False]
    """
    return any(not _wordlike(character) for character in token)


def is_enclosed(token: str) -> bool:
    """Tell whether markup stands on both sides of a name: ordinary text has no such token.

    >>> [is_enclosed(token) for token in ("</s>", "[EOS]", "__end__", "...", "don't", "end")]
    [True, True, True, False, False, False]
    """
    ends = not token or _wordlike(token[0]) or _wordlike(token[-1])
    return not ends and any(map(_wordlike, token))


def _wordlike(character: str) -> bool:
    if character.isspace() or character == "\u2581":
        return True
    category = unicodedata.category(character)
    return category[0] in "LNM" or category == "So"


def listed_controls(tokens: Iterable[str]) -> str:
    """Return control tokens for a message: the first of them, and how many more there are.

    >>> listed_controls(f"[{number}]" for number in range(1000))
    '[0], [1], [2], [3], [4], [5], [6], [7], [8], [9] and 990 more'
    """
    tokens = list(tokens)
    shown = ", ".join(tokens[:SHOWN_CONTROLS])
    num_more = len(tokens) - SHOWN_CONTROLS
    return f"{shown} and {num_more:,} more" if num_more > 0 else shown
