"""Two targets side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.view.browser.conftest import opened
from tests.view.browser.driving import Page, serving


@pytest.fixture(scope="module")
def pair(driver: Chrome, folder: Path) -> Iterator[Page]:
    with serving(opened(folder, "recipe.toml", "other.toml")) as served:
        page = Page(driver, served)
        page.resize(1280, 800)
        yield page
        assert page.complaints() == []


def test_what_differs_and_the_first_differing_step_are_told(pair: Page) -> None:
    pair.open()
    answer = pair.served.answer("api/compare")
    pair.wait("return document.querySelector('.verdict')")
    assert f"step {answer['first_step']}" in pair.find(".verdict").text
    fields = [difference["field"] for difference in answer["differences"]]
    assert pair.texts(".compare-what tbody th") == fields
    assert pair.texts(".compare-what tbody td")[:2] == ["7", "8"]


def test_the_rows_of_a_step_stand_side_by_side_from_the_first_difference(pair: Page) -> None:
    pair.open("view=compare&step=5")
    answer = pair.served.answer("api/compare/step/5")
    differing = [row for row in answer["rows"] if not row["same"]]
    pair.wait("return document.querySelectorAll('.pair').length === arguments[0]", len(differing))
    for target in (0, 1):
        row = differing[0]
        query = {"target": target} if target else {}
        part = pair.served.answer(f"api/step/5/row/{row['row']}", start=0, stop=192, **query)
        side = f".pair:nth-of-type(1) .side:nth-child({target + 1}) .chips"
        pair.wait("return document.querySelector(arguments[0])", f"{side} .chip")
        if row["first_slot"] is not None:
            chosen = pair.texts(f"{side} .chip.selected")
            assert chosen == [pair.chip_text(part["texts"][row["first_slot"]])]


@pytest.mark.soak
def test_each_of_the_two_has_its_own_batch(pair: Page) -> None:
    pair.open("view=batch&step=5")
    pair.shows_step(5)
    pair.click(".targets button:last-child")
    second = pair.served.answer("api/step/5/rows", start=0, stop=1, slots=16, target=1)[0]
    wanted = [pair.chip_text(text) for text in second["texts"][:8]]
    pair.wait_for(lambda: pair.texts('.row[data-row="0"] .chip')[:8] == wanted)
    assert pair.find("h1").text.startswith("other.toml")
