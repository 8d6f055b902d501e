"""Rows of 32,768 tokens in batches of 512: what is in the page is what is near the window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.view.browser.conftest import opened
from tests.view.browser.driving import Page, serving

MOST_ELEMENTS = 25_000  # 16,777,216 tokens are in the batch
SCROLL = """
const done = arguments[arguments.length - 1], [by, count] = arguments, times = [];
let last = performance.now(), most = 0;
function frame(now) {
  times.push(now - last);
  last = now;
  scrollBy(0, by);
  if (times.length % 20 === 0) most = Math.max(most, document.querySelectorAll('*').length);
  if (times.length < count) requestAnimationFrame(frame);
  else {
    times.sort((a, b) => a - b);
    done({most, top: scrollY, median: times[count >> 1], p95: times[Math.floor(count * 0.95)]});
  }
}
requestAnimationFrame(frame);
"""


@pytest.fixture(scope="module")
def wide(driver: Chrome, folder: Path) -> Iterator[Page]:
    with serving(opened(folder, "wide.toml")) as served:
        page = Page(driver, served)
        page.resize(1440, 900)
        page.driver.set_script_timeout(60)
        yield page


@pytest.mark.parametrize(
    "fragment",
    [
        pytest.param("step=3", id="closed", marks=pytest.mark.soak),
        pytest.param("step=3&open=2", id="open"),
    ],
)
def test_scrolling_keeps_the_page_small(wide: Page, fragment: str) -> None:
    wide.open(fragment)
    seen = wide.driver.execute_async_script(SCROLL, 100, 120)
    print(
        f"\n{fragment}: {seen['median']:.1f} ms a frame, 95 % below {seen['p95']:.1f} ms,", end=""
    )
    print(f" at most {seen['most']:,} elements")
    assert seen["top"] > 100 * 100  # less than 120 times 100: rows above turn out lower
    assert seen["most"] < MOST_ELEMENTS
    wide.wait("return document.querySelectorAll('.chips:not(.waiting) .chip').length > 100")


def test_a_slot_far_inside_a_row_is_shown_by_its_link(wide: Page) -> None:
    wide.open("step=3&open=2&row=2&slot=20700")
    wide.wait("return document.querySelector('.chip.selected')")
    box = wide.wait_for(
        lambda: next((box for box in [wide.box(".chip.selected")] if 200 < box["top"] < 900), None)
    )
    assert box["width"] > 0
    part = wide.served.answer("api/step/3/row/2", start=20700, stop=20701)
    wide.wait_for(lambda: f"{part['ids'][0]:,}" in wide.find(".panel").text)
    assert "20,700 of 32,768" in wide.find(".panel").text
    assert wide.count("*") < MOST_ELEMENTS
    wide.wait("return document.querySelector('canvas.attention')")
    assert "row 2" in wide.find(".crumb").text


def test_the_last_row_and_the_last_slot_can_be_reached(wide: Page) -> None:
    wide.open("step=3&open=511&row=511&slot=32767")
    wide.wait("return document.querySelector('.chip.selected')")
    number = "return document.querySelector('.chip.selected').closest('.chunk').firstChild"
    assert wide.js(f"{number}.textContent") == "32,512"
    wide.wait_for(lambda: 0 < wide.box(".chip.selected")["top"] < 900)


@pytest.mark.soak
def test_a_click_on_the_bar_inside_a_row_closes_it(wide: Page) -> None:
    wide.open("step=3&open=2&row=2&slot=9000")
    wide.wait("return !document.querySelector('.crumb').hidden")
    wide.find(".crumb").click()
    wide.wait("return document.querySelector('.crumb').hidden")
    assert "open" not in wide.state
