"""Tokens as chips in HTML: trained, masked and control tokens told apart, by more than colour.

A trained token has a solid line under it, a masked one a dotted line, and a control token is a
pill, filled where it is trained, with a diamond in front of its name: text that spells the name
has none.
"""

from __future__ import annotations

from tokenreel.builder.samples import Chip, Sample
from tokenreel.display.escaped import printed

NEW_LINE = "⏎\n"  # its picture, and the end of the line
DIAMOND = "◆"


def chip_row(sample: Sample) -> str:
    """Return the chips of a sample."""
    between = ""
    if sample.num_between:
        between = f'\n<span class="more">… {sample.num_between:,} tokens …</span>\n'
    first, last = ("".join(map(_chip, chips)) for chips in (sample.first, sample.last))
    return f'<div class="chips">{first}{between}{last}</div>'


def legend() -> str:
    """Return what the chips mean."""
    kinds = (
        ("chip t", "trained", "the model is asked for it"),
        ("chip m", "masked", "it is only read"),
        ("chip c", f"{DIAMOND} control", "structure, which no text is ever encoded to"),
        ("chip c t", f"{DIAMOND} control", "the same, trained"),
    )
    shown = "; ".join(f'<span class="{css}">{name}</span> {told}' for css, name, told in kinds)
    return f"<p>Documents, token by token: {shown}.</p>"


def _chip(chip: Chip) -> str:
    kind = "t" if chip.is_trained else "m"
    ids = " ".join(map(str, chip.ids))
    if chip.is_control:
        told = "trained" if chip.is_trained else "masked"
        text = f"{DIAMOND} {printed(chip.text)}"
        return f'<span class="chip c {kind}" title="{ids}, control, {told}">{text}</span>'
    text = "".join(NEW_LINE if letter == "\n" else printed(letter) for letter in chip.text) or "∅"
    # The line is broken behind the chip, which would go on in the next line otherwise.
    after = "\n" if text.endswith("\n") else ""
    return f'<span class="chip {kind}" title="{ids}">{text.removesuffix(after)}</span>{after}'
