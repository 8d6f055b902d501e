"""The one style of tokens: legible in light and dark, told apart by the colour-blind."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from tests.display.colours import EYES, Palette, contrast, distance, mixed, palettes, sheet

LIGHT, DARK, CHOSEN_DARK = palettes()
HUES = [f"hue-{number}" for number in range(8)]
AA_TEXT = 4.5  # WCAG 2.2, 1.4.3
AA_SHAPE = 3.0  # WCAG 2.2, 1.4.11
SCHEMES = pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])


def test_the_dark_a_reader_chooses_is_the_dark_of_the_system() -> None:
    assert DARK == CHOSEN_DARK
    assert DARK.keys() == LIGHT.keys()
    assert {*HUES, "paper", "ink", "soft", "line", "panel", "chip"} < LIGHT.keys()
    assert {"trained", "trained-ink", "edge", "pad", "control", "needle"} < LIGHT.keys()


def grounds_of(palette: Palette) -> dict[str, list[str]]:
    """Return what each colour of text is read on."""
    hatches = re.findall(r"#[0-9a-f]{6}", palette["pad"])
    assert len(hatches) == 2
    pages = [palette["paper"], palette["panel"]]
    context, trained = map(int, re.findall(r"var\(--hue\) (\d+)%", sheet()))
    faint = [mixed(palette[hue], context / 100, palette["panel"]) for hue in HUES]
    strong = [mixed(palette[hue], trained / 100, palette["panel"]) for hue in HUES]
    (least,) = map(int, re.findall(r"calc\((\d+)% \+", sheet()))
    shares = (least / 100, 0.6, 1.0)
    pale = [mixed(palette["trained"], share, palette["chip"]) for share in shares]
    return {
        "ink": [*pages, palette["chip"], palette["trained"], *strong, *faint],
        "soft": [*pages, palette["chip"], *hatches, *faint],
        "trained-ink": pale,
        "control": [*pages, palette["trained"]],
        "needle": [],
        "warn": pages,
    }


@SCHEMES
def test_every_text_has_the_contrast_of_wcag_aa(palette: Palette) -> None:
    weak = [
        (ink, ground, round(contrast(palette[ink], ground), 2))
        for ink, grounds in grounds_of(palette).items()
        for ground in grounds
        if contrast(palette[ink], ground) < AA_TEXT
    ]
    assert weak == []


@SCHEMES
def test_every_shape_that_means_something_stands_out_from_the_page(palette: Palette) -> None:
    weak = [
        (shape, ground, round(contrast(palette[shape], palette[ground]), 2))
        for shape in ("edge", "control", "needle", *HUES)
        for ground in ("paper", "panel")
        if contrast(palette[shape], palette[ground]) < AA_SHAPE
    ]
    assert weak == []


@SCHEMES
@pytest.mark.parametrize("eye", EYES)
def test_the_hues_are_told_apart_by_every_eye(palette: Palette, eye: str) -> None:
    near = {
        pair: round(distance(palette[pair[0]], palette[pair[1]], eye), 1)
        for pair in combinations(HUES, 2)
    }
    least = 12 if eye == "usual" else 7.5  # Okabe and Ito's own eight come to 7.6
    assert {pair: far for pair, far in near.items() if far < least} == {}


def test_the_style_asks_for_nothing_from_elsewhere_and_names_every_kind() -> None:
    assert "url(" not in sheet() and "@import" not in sheet()
    for kind in ("trained", "control", "begins", "padding", "selected"):
        assert f".chip.{kind} {{" in sheet()
