"""Shares of sources over the steps of a run, as bands in SVG.

Lengths along the steps are per cent of the width, so that the drawing is as wide as its place and
no letter is stretched; only the bands lie in an inner drawing that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tokenreel.display.escaped import printed
from tokenreel.display.token_chips import NUM_HUES

TOP, HEIGHT, BOTTOM = 18, 46, 20  # pixels: steps of marks, bands, numbers of steps
NUM_TICKS = 5
FINE = 1000  # units of the bands' height
NEAREST_LABELS = 0.1  # of the width; a mark that is nearer to the one before has no number
MOST_MARKS = 8  # so many are told in words
MOST_BANDS = 24  # the smaller ones of more sources are one band, in grey
OTHERS_HUE = NUM_HUES - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A step at which something changes, and what."""

    step: int
    text: str


def share_bands(
    borders: Sequence[int],
    shares: np.ndarray,
    *,
    marks: Sequence[Mark] = (),
    step: int | None = None,
    prefix: str = "",
) -> str:
    """Return the drawing of shares [sources, columns] between borders, columns + 1 steps.

    `step`: where the needle stands, if anywhere.
    """
    drawn = [_bands(borders, *_few(shares), prefix), *_marks(borders, marks, prefix)]
    drawn += _ticks(borders)
    if step is not None and borders[0] <= step <= borders[-1]:
        at = f"{_part(borders, step):.2%}"
        drawn.append(
            f'<line class="{prefix}needle" x1="{at}" x2="{at}" y1="{TOP - 4}" '
            f'y2="{TOP + HEIGHT + 3}"/>'
            f'<circle class="{prefix}needle" cx="{at}" cy="{TOP + HEIGHT + 3}" r="3"/>'
        )
    told = f"shares of {len(shares):,} sources over steps {borders[0]:,} to {borders[-1]:,}"
    return (
        f'<svg class="{prefix}share-bands" width="100%" height="{TOP + HEIGHT + BOTTOM}" '
        f'role="img" aria-label="{told}">{"".join(drawn)}</svg>'
    )


def _few(shares: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return the shares of the largest sources, those of all others added up, and their hues."""
    if len(shares) <= MOST_BANDS:
        return shares, list(range(len(shares)))
    largest = np.sort(np.argsort(-shares.mean(axis=1), kind="stable")[: MOST_BANDS - 1])
    others = shares.sum(axis=0) - shares[largest].sum(axis=0)
    return np.vstack([shares[largest], others]), [*largest.tolist(), OTHERS_HUE]


def _bands(borders: Sequence[int], shares: np.ndarray, hues: Sequence[int], prefix: str) -> str:
    """Return a path for each source: its upper edge from left to right, its lower edge back."""
    steps = np.asarray(borders, float)
    edges = np.zeros((len(shares) + 1, shares.shape[1]))  # of the bands, from the top
    np.cumsum(shares, axis=0, out=edges[1:])
    heights = np.round(edges * FINE).astype(int)
    paths = []
    for hue, (upper, lower) in zip(hues, pairwise(heights), strict=True):
        if not (lower > upper).any():
            continue
        points = _stairs(steps, upper) + _stairs(steps, lower)[::-1]
        line = "L".join(f"{x:g} {y}" for x, y in points)
        css = f"{prefix}hue-{hue % NUM_HUES}"
        paths.append(f'<path class="{css}" d="M{line}Z"/>')
    box = f"{steps[0]:g} 0 {steps[-1] - steps[0]:g} {FINE}"
    return (
        f'<svg y="{TOP}" width="100%" height="{HEIGHT}" viewBox="{box}" '
        f'preserveAspectRatio="none">{"".join(paths)}</svg>'
    )


def _stairs(steps: np.ndarray, heights: np.ndarray) -> list[tuple[float, int]]:
    """Return the corners of a line that has a height between each two steps."""
    corners = [(float(steps[0]), int(heights[0]))]
    for at, (here, after) in enumerate(pairwise(heights.tolist()), start=1):
        if here != after:
            corners += [(float(steps[at]), here), (float(steps[at]), after)]
    return [*corners, (float(steps[-1]), int(heights[-1]))]


def _marks(borders: Sequence[int], marks: Sequence[Mark], prefix: str) -> list[str]:
    """Return a broken line for each mark, and its step above it where there is room."""
    drawn, named_at = [], -1.0
    for mark in marks:
        part = _part(borders, mark.step)
        if not 0 <= part <= 1:
            continue
        at = f"{part:.2%}"
        drawn.append(
            f'<line class="{prefix}mark" x1="{at}" x2="{at}" y1="{TOP - 4}" y2="{TOP + HEIGHT}">'
            f"<title>{printed(mark.text)}</title></line>"
        )
        if named_at < 0 or part - named_at >= NEAREST_LABELS:
            drawn.append(
                f'<text x="{at}" y="{TOP - 8}" text-anchor="{_side(part)}">{mark.step:,}</text>'
            )
            named_at = part
    return drawn


def marks_html(marks: Sequence[Mark], *, prefix: str = "") -> str:
    """Return what happens at the marks, in words below the drawing."""
    shown = [f"step {mark.step:,}: {mark.text}" for mark in marks[:MOST_MARKS]]
    if len(marks) > MOST_MARKS:
        shown.append(f"… and {len(marks) - MOST_MARKS:,} more")
    lines = "".join(f"<span>{printed(line)}</span>" for line in shown)
    return f'<div class="{prefix}chip-legend">{lines}</div>' if shown else ""


def _ticks(borders: Sequence[int]) -> list[str]:
    first, length = borders[0], borders[-1] - borders[0]
    steps = dict.fromkeys(first + length * k // (NUM_TICKS - 1) for k in range(NUM_TICKS))
    return [
        f'<text x="{_part(borders, step):.2%}" y="{TOP + HEIGHT + 15}" '
        f'text-anchor="{_side(_part(borders, step))}">{step:,}</text>'
        for step in steps
    ]


def _side(part: float) -> str:
    """Return how a number stands at its place: centred, but not over the edge."""
    return "start" if part < 0.04 else "end" if part > 0.96 else "middle"


def _part(borders: Sequence[int], step: int) -> float:
    return (step - borders[0]) / (borders[-1] - borders[0])
