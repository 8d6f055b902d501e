"""A fixed sample of texts that tokenizers are known to disagree about.

About 500 texts, 100 kB, the same on every machine and in every version of Python:
the random ones are drawn by a hash, not by a generator that may change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

_RUN = 3_000
_NUM_RANDOM = 400

_CHOSEN = (
    "",
    " ",
    "  ",
    " a",
    "a ",
    "\t \n\r\n \r x\r",
    "\x00",
    "a\x00b\x1b[0m\x7f\x85",
    "\ufeffbyte order mark",
    "e\u0301 \u0301 n\u0303\u0303\u0303 \u1100\u1161\u11a8",
    "ﬁ ﬀ ①② ｆｕｌｌ \u00a0\u2003\u3000\u200b\u200d\u00ad",
    "👩\u200d👩\u200d👧\u200d👦🏽🇩🇪❤\ufe0f",
    "don't can't WE'LL I'Ve 's'S’s",
    "12345678901234567890 3.14 1,000,000 ٣٤٥ ⅷ",
    "日本語のテキスト、漢字。한국어 텍스트 العربية עברית ไทย हिन्दी",
    "def f(x):\n\n\n    return {x: [y for y in x if y != 'z']}  # …\n\t\tpass\n",
    "<0x41> <unk> <s></s> [CLS] \u2581 \u2581\u2581x \u0120\u010a ## @@ </w>",
    "\U0010ffff \ue000 \ufffd \uffff \u2028\u2029",
    "İıſßẞ ǅ K Å ﷺ",
    "....,,,,!!!!???? --- === *** ___ ((((]]]]",
)

_ALPHABETS = (
    "ab ",
    " \n\t\r",
    "aAéÉßıİ'’ ",
    "019²⅓٣ .,",
    "<|>/_[]{}#@!\\ ",
    "e\u0301\u0303\u0327 \u200d\ufe0f",
    "日本한국ไท 。",
    "👩🏽\u200d❤😀🇩🇪 ",
    "\u2581\u0120\u010a\u00a0 a",
    "\x00\x01\x1f\x7f\x85 a",
    "the of and in to is that return self def import ",
)


def hostile_sample(spelled: Iterable[str] = ()) -> list[str]:
    """Return the sample; each string of `spelled` stands in it alone and inside text.

    >>> sample = hostile_sample(["<|eot|>"])
    >>> "<|eot|>" in sample, sample == hostile_sample(["<|eot|>"])
    (True, True)
    """
    return [*_CHOSEN, *_runs(), *_spelling(list(spelled)), *_random()]


def _runs() -> Iterator[str]:
    for unit in ("a", " ", "\n", "=", "0", "ab", "é", "漢", "😀", "\u0301", " a", "a\n", "\r\n"):
        yield unit * (_RUN // len(unit))


def _spelling(strings: list[str]) -> Iterator[str]:
    for string in strings[:64]:
        yield from (string, f" {string} ", f"x{string}y", string + string, string[:-1], string[1:])
    yield " and ".join(strings)


def _random() -> Iterator[str]:
    for number in range(_NUM_RANDOM):
        draws = hashlib.shake_128(f"hostile {number}".encode()).digest(2 * 64)
        letters = _ALPHABETS[number % len(_ALPHABETS)]
        if number % 3 == 0:
            letters += _ALPHABETS[draws[0] % len(_ALPHABETS)]
        # A third of the texts are short: that is where beginnings and ends meet.
        length = draws[1] % 8 if number % 3 == 1 else draws[1] % 64
        yield "".join(_pick(letters, draws, place) for place in range(length))


def _pick(letters: str, draws: bytes, place: int) -> str:
    draw = int.from_bytes(draws[2 * place : 2 * place + 2], "little")
    if draw % 97 == 0:
        # Now and then any code point at all, except the surrogates, which are no text.
        return chr(draw * 16 % 0xD800)
    return letters[draw % len(letters)]
