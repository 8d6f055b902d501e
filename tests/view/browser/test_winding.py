"""The reel: every way to go to a step, and the address that follows."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from tests.view.browser.driving import Page


def test_a_page_begins_with_the_first_step_and_shows_every_row(page: Page) -> None:
    page.open()
    page.shows_step(0)
    assert page.texts(".row-name") == [f"row {number}" for number in range(6)]
    assert page.find(".step-field").get_property("value") == "0"
    assert "of 400" in page.find(".step").text


def test_arrow_page_home_and_end_keys_wind_and_are_in_the_address(page: Page) -> None:
    page.open("step=57")
    for key, step in (
        (Keys.ARROW_RIGHT, 58),
        (Keys.ARROW_LEFT, 57),
        (Keys.PAGE_UP, 157),
        (Keys.PAGE_DOWN, 57),
        (Keys.END, 399),
        (Keys.ARROW_RIGHT, 399),
        (Keys.HOME, 0),
        (Keys.ARROW_LEFT, 0),
    ):
        page.press(key)
        page.shows_step(step)
        assert int(page.state.get("step", 0)) == step
        assert page.find(".needle").get_attribute("aria-valuenow") == str(step)


def test_the_field_takes_a_step_and_goes_to_the_last_one_for_a_number_beyond(page: Page) -> None:
    page.open()
    page.press("g", "1", "2", "3", Keys.ENTER)
    page.shows_step(123)
    page.press("9", "9", "9", "9", "9", Keys.ENTER)
    page.shows_step(399)
    page.find(".step-field").clear()
    page.find(".step-field").send_keys("nothing", Keys.ENTER)
    assert page.find(".step-field").get_property("value") == "399"


def test_the_needle_is_dragged_by_a_pointer(page: Page) -> None:
    page.open("step=0")
    track = page.find(".reel-track")
    width = page.box(".reel-track")["width"]
    pointer = page.pointer().move_to_element_with_offset(track, int(-width / 4), 0)
    pointer.click_and_hold().perform()
    page.shows_step(100)
    page.pointer().move_by_offset(int(width / 4), 0).release().perform()
    page.shows_step(200)
    page.pointer().move_by_offset(int(width / 8), 0).perform()
    assert page.state["step"] == "200"  # a pointer that only passes winds nothing
    assert page.find(".reel-told").text.startswith("step 2")


@pytest.mark.soak
def test_the_needle_is_dragged_by_a_finger(page: Page) -> None:
    page.resize(390, 844, is_phone=True)
    page.open("step=0")
    box = page.box(".reel-track")
    for kind, share in (("touchStart", 0.25), ("touchMove", 0.4), ("touchMove", 0.5)):
        x, y = box["left"] + share * box["width"], box["top"] + 40
        touch = {"type": kind, "touchPoints": [{"x": x, "y": y}]}
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", touch)
    page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for(lambda: page.state.get("step") == "200")
    page.shows_step(200)


@pytest.mark.soak
def test_two_fingers_zoom_the_reel(page: Page) -> None:
    page.resize(390, 844, is_phone=True)
    page.open("step=200")
    box = page.box(".reel-track")
    middle, y = box["left"] + box["width"] / 2, box["top"] + 40
    for kind, apart in (("touchStart", 40), ("touchMove", 60), ("touchMove", 80)):
        points = [{"x": middle - apart, "y": y, "id": 0}, {"x": middle + apart, "y": y, "id": 1}]
        touch = {"type": kind, "touchPoints": points}
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", touch)
    page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for(lambda: "to" in page.state)
    assert 150 < int(page.state["to"]) - int(page.state["from"]) < 250  # half of 400


def test_the_back_button_returns_to_what_was_seen(page: Page) -> None:
    page.open("step=57")
    page.click(".row-name")
    page.wait("return document.querySelector('.row.open')")
    page.pause(0.8)  # what follows in a shorter time is one entry of the history
    page.press(Keys.END)
    page.shows_step(399)
    page.driver.back()
    page.shows_step(57)
    page.driver.back()
    page.wait("return !document.querySelector('.row.open')")


@pytest.mark.soak
def test_a_link_shows_the_same_view_in_another_window(page: Page) -> None:
    page.open("step=57")
    page.press("c", Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    for _ in range(12):
        page.press(Keys.ARROW_RIGHT, shift=True)
    page.wait_for(lambda: "11 of 192" in page.find(".panel").text)
    words = page.find(".panel section").text
    page.open(page.driver.current_url.partition("#")[2])
    page.wait_for(lambda: page.find(".panel section").text == words)
    assert page.count(".chip.selected") == 1
    assert page.find('.choice [aria-pressed="true"]').text in ("batch", "segment")


def test_keys_and_the_wheel_zoom_the_reel_about_the_needle(page: Page) -> None:
    page.open("step=300")
    page.press("+", "+", "+")
    state = page.state
    assert int(state["to"]) - int(state["from"]) == 205
    assert int(state["from"]) <= 300 < int(state["to"])
    page.wait("return !document.querySelector('.reel-overview').hidden")
    page.press("-")
    assert int(page.state["to"]) - int(page.state["from"]) == 256
    page.press("0")
    assert "from" not in page.state
    page.js(
        "document.querySelector('.reel-track').dispatchEvent(new WheelEvent('wheel',"
        "{deltaY: -100, clientX: innerWidth / 2, bubbles: true, cancelable: true}))"
    )
    assert int(page.state["to"]) - int(page.state["from"]) == 320


@pytest.mark.soak
def test_marks_and_epochs_are_told_where_the_pointer_is(page: Page) -> None:
    page.open("step=0")
    page.pointer().move_to_element(page.find(".reel-track")).perform()
    told = page.find(".reel-told").text
    assert told.startswith("weights chat 0.6 · step 200 · ")  # the phase that begins there
    assert "chat 30" in told and "epoch" in told and "%" in told
