"""Pages and cards that stand alone, in a real browser: the same colours, and room on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.display.colours import palettes

from tokenreel.cli.main import main
from tokenreel.feed.feed import Feed

PHONE = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
HOST = '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'


@pytest.fixture(scope="module")
def pages(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of a build, that of a plan, and cards in a page of somebody else."""
    out = tmp_path_factory.mktemp("pages")
    recipe = folder / "recipe.toml"
    assert main(["plan", str(recipe), "--report", str(out / "plan.html")]) == 0
    feed = Feed(recipe)
    tokenizer = folder / "tokenizer.json"
    cards = (
        feed,
        feed.batch(3),
        feed.show(3, tokenizer=tokenizer),
        feed.stores[0],
        feed.explain(3, tokenizer=tokenizer),
    )
    drawn = "".join(card._repr_html_() or "not drawn" for card in cards)
    (out / "cards.html").write_text(f"{HOST}<p id=theirs class=chip>theirs</p>{drawn}")
    return {
        "build": folder / "chats" / "report.html",
        "plan": out / "plan.html",
        "cards": out / "cards.html",
    }


@pytest.fixture
def phone(driver: Chrome) -> Iterator[Chrome]:
    driver.get("about:blank")
    driver.get_log("browser")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    yield driver
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def show(driver: Chrome, page: Path, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    driver.get(page.as_uri())


def style_of(driver: Chrome, selector: str, name: str) -> str:
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    value: str = driver.execute_script(script, selector, name)
    return value


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


@pytest.mark.parametrize("name", ["build", "plan", "cards"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_nothing_of_a_store_is_markup(
    name: str, scheme: str, pages: dict[str, Path], phone: Chrome
) -> None:
    show(phone, pages[name], scheme)
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert phone.execute_script(wide) <= 0
    assert phone.execute_script("return document.querySelectorAll('img, script').length") == 0
    assert [line for line in phone.get_log("browser") if line["level"] == "SEVERE"] == []


@pytest.mark.parametrize(
    ("name", "chip"), [("build", ".chip.trained"), ("cards", ".tokenreel-chip.tokenreel-trained")]
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_trained_token_has_the_colour_and_the_line_of_the_palette(
    name: str, chip: str, scheme: str, pages: dict[str, Path], phone: Chrome
) -> None:
    palette = palettes()[scheme == "dark"]
    show(phone, pages[name], scheme)
    assert style_of(phone, f"{chip}[title]", "color") == rgb(palette["trained-ink"])
    assert style_of(phone, f"{chip}[title]", "borderBottomColor") == rgb(palette["edge"])
    assert style_of(phone, f"{chip}[title]", "borderBottomStyle") == "solid"


def test_cards_leave_the_page_around_them_alone(pages: dict[str, Path], phone: Chrome) -> None:
    show(phone, pages["cards"], "light")
    assert style_of(phone, "#theirs", "backgroundColor") == "rgba(0, 0, 0, 0)"
    assert style_of(phone, "#theirs", "borderRadius") == "0px"
    assert style_of(phone, "body", "backgroundColor") == "rgba(0, 0, 0, 0)"
