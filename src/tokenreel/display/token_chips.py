"""Tokens as chips in HTML, in the classes of chips.css: the kinds are told by more than colour.

A trained token has a line under it, a context token has none, a control id is an outlined pill,
which no text is ever drawn as, padding is hatched, and a bar stands where a document begins.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenreel.display.escaped import PICTURES, printed, token_html

NUM_HUES = 8  # of chips.css
CONTROL = re.compile(r"<[|｜]?(.+?)[|｜]?>")
LONG_HASH = re.compile(r"_[0-9a-f]{16,}$")
WEIGHT = "weight"  # the variable of chips.css
EMPTY = "∅"  # a token that says nothing
LEGEND = {
    "trained": "the model is asked for it",
    "context": "seen, not asked for",
    "control": "made by structure, never by text",
    "padding": "no token",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Tokens that are shown as one: a token, or those that spell one character together.

    `weight` is how much the model is asked for it, 0 for context; `told` is what stands beside
    its ids when it is pointed at.
    """

    ids: tuple[int, ...]
    text: str
    weight: float = 0.0
    is_control: bool = False
    begins: bool = False
    told: str = ""

    @property
    def is_trained(self) -> bool:
        """Whether the model is asked for it."""
        return self.weight > 0


def text_ranges(texts: Sequence[str | None]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of tokens that are shown as one: None goes with the next text.

    >>> list(text_ranges(["a", None, "é"]))
    [(0, 1), (1, 3)]
    """
    start = 0
    for stop, text in enumerate(texts, start=1):
        if text is not None or stop == len(texts):
            yield start, stop
            start = stop


def chips_of(
    ids: Sequence[int],
    texts: Sequence[str | None],
    weights: Sequence[float],
    *,
    controls: Container[int] = (),
) -> Iterator[Chip]:
    """Yield the chips of tokens: what each says, and how much the model is asked for it."""
    for start, stop in text_ranges(texts):
        yield Chip(
            ids=tuple(ids[start:stop]),
            text=texts[stop - 1] or "",
            weight=weights[stop - 1],
            is_control=ids[stop - 1] in controls,
        )


def short_control(name: str) -> str:
    """Return the name inside a control token, which its pill tells from text, without a long hash.

    >>> short_control("<|im_end|>"), short_control("</s>"), short_control("[INST]")
    ('im_end', '/s', '[INST]')
    """
    inside = CONTROL.fullmatch(name)
    return LONG_HASH.sub("", inside[1]) or name if inside else name


def chips_html(
    chips: Iterable[Chip], *, newline: str = PICTURES["\n"], between: str = "", prefix: str = ""
) -> str:
    """Return chips one after the other; `prefix` goes before each name of a class.

    `newline` stands for the end of a line in a text: its picture, or that and a real one.
    """
    return between.join(_chip(chip, newline, prefix) for chip in chips)


def _chip(chip: Chip, newline: str, prefix: str) -> str:
    kinds = ["chip", "trained" if chip.is_trained else "context"]
    kinds += ["control"] * chip.is_control + ["begins"] * chip.begins
    css = " ".join(f"{prefix}{kind}" for kind in kinds)
    pale = f' style="--{WEIGHT}:{chip.weight:.2f}"' if 0 < chip.weight < 1 else ""
    ids, text = " ".join(map(str, chip.ids)), chip.text
    told = ", ".join(filter(None, (ids, text if chip.is_control else "", chip.told)))
    text = short_control(text) if chip.is_control else text
    text = newline.join(map(token_html, text.split("\n"))) or EMPTY
    # The line is broken behind the chip, which would go on in the next line otherwise.
    after = "\n" * text.endswith("\n")
    text = text.removesuffix(after)
    return f'<span class="{css}"{pale} title="{printed(told)}">{text}</span>{after}'


def padding_html(num_slots: int, *, prefix: str = "") -> str:
    """Return so many slots of padding as one chip."""
    return f'<span class="{prefix}chip {prefix}padding">{num_slots:,} padding</span>'


def more_html(text: str, *, prefix: str = "") -> str:
    """Return a remark between chips, such as how many are left out."""
    return f'<span class="{prefix}chip-more">{printed(text)}</span>'


def swatch_html(number: int, *, prefix: str = "") -> str:
    """Return a dot in the colour of the source or segment of this number."""
    return f'<span class="{prefix}swatch {prefix}hue-{number % NUM_HUES}"></span>'


def legend_html(*, prefix: str = "") -> str:
    """Return what the chips mean, in one line."""
    shown = "".join(
        f'<span><span class="{prefix}chip {prefix}{kind}">{kind}</span> {told}</span>'
        for kind, told in LEGEND.items()
    )
    return f'<div class="{prefix}chip-legend">{shown}</div>'
