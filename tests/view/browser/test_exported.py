"""One view as one file, opened from disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from tests.view.browser.conftest import opened
from tests.view.browser.driving import Page, Served
from tests.view.browser.test_hostile import MARKS

from tokenreel.view.export import export_page


@pytest.fixture
def exported(driver: Chrome, folder: Path, tmp_path: Path) -> Page:
    answers = opened(folder, "recipe.toml", first_step=57)
    path = tmp_path / "step.html"
    export_page(answers, path)
    page = Page(driver, Served(answers=answers, address=path.as_uri()))
    page.resize(1280, 800)
    page.complaints()
    return page


def test_an_exported_file_shows_its_step_without_a_server(exported: Page) -> None:
    exported.open()
    exported.shows_step(57)
    assert exported.texts(".row-name") == [f"row {number}" for number in range(6)]
    exported.press(Keys.ARROW_DOWN, Keys.ENTER)
    exported.press(Keys.ARROW_RIGHT, shift=True)
    exported.wait("return document.querySelector('.panel .chip.big')")
    exported.wait("return document.querySelector('canvas.attention')")
    exported.press("c")
    exported.wait("return document.querySelector('.chip.hue-0')")
    exported.press(Keys.ARROW_RIGHT)  # other steps are not in it
    exported.pause(0.2)
    assert exported.state["step"] == "57"
    assert exported.complaints() == []
    assert [name for name in exported.requests() if not name.startswith("file:")] == []


def test_hostile_text_does_not_end_the_script_of_an_exported_file(
    driver: Chrome, folder: Path, tmp_path: Path
) -> None:
    answers = opened(folder, "texts")
    path = tmp_path / "store.html"
    export_page(answers, path)
    page = Page(driver, Served(answers=answers, address=path.as_uri()))
    page.complaints()
    page.open()
    page.wait("return document.querySelector('.sample .chip')")
    assert page.count("img") == 0
    assert page.count("script") == 2  # the page's own, and its answers
    assert not any(mark in page.js("return document.body.textContent") for mark in MARKS)
    assert page.complaints() == []
