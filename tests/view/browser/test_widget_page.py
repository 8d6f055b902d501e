"""feed.widget() in a real browser: its script draws what its Python answers, whatever the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import Chrome
from tests.view.notebook_side import Notebook, open_widget

from tokenreel.feed.feed import Feed

# A notebook's page that means no good to our classes: nothing of it may reach into the widget.
HOST = """
<style>.chip, .row, button { display: none !important } span { color: red !important }</style>
<body data-jp-theme-light="THEME"><span class="chip" id="theirs">theirs</span>
<div id="cell"></div></body>
"""
# The part of a notebook that hands messages on, as anywidget's model does.
MODEL = """
const [state, script] = [arguments[0], arguments[1]];
window.model = {
  state, sent: [], changed: {}, heard: {},
  get(name) { return this.state[name]; },
  set(name, value) { this.state[name] = value; this.changed[name] = value; },
  save_changes() { this.sent.push({ method: "update", state: this.changed }); this.changed = {}; },
  send(content) { this.sent.push({ method: "custom", content }); },
  on(event, listener) { (this.heard[event] ??= []).push(listener); },
  off(event, listener) { this.heard[event] = this.heard[event].filter((one) => one !== listener); },
  fire(event, message) { (this.heard[event] ?? []).forEach((listener) => listener(message)); },
};
const style = document.createElement("style");
style.textContent = state._css;
document.head.append(style);
const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
const done = arguments[arguments.length - 1];
import(address).then((module) => {
  window.end = module.default.render({ model: window.model, el: document.getElementById("cell") });
  window.root = document.querySelector("#cell > *").shadowRoot;
  done(null);
}, (error) => done(String(error)));
"""


class Shown:
    """A widget in a page, with messages carried to its Python and back."""

    def __init__(self, driver: Chrome, widget: Any, notebook: Notebook) -> None:
        self.driver, self.widget, self.notebook = driver, widget, notebook
        driver.get("about:blank")

    def open(self, theme: str = "true") -> Shown:
        self.js("document.write(arguments[0]); document.close()", HOST.replace("THEME", theme))
        state = dict(self.notebook.state)
        failed = self.driver.execute_async_script(MODEL, state, state.pop("_esm"))
        assert failed is None, failed
        self.settle()
        return self

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def carry(self) -> int:
        """Carry what the page has sent to Python, and the answers back; return how much it was."""
        sent = self.js("return window.model.sent.splice(0)")
        for message in sent:
            self.notebook.say(**message)
        for answer in self.notebook.answers:
            self.js("window.model.fire('msg:custom', arguments[0])", answer)
        self.notebook.answers.clear()
        return len(sent)

    def settle(self) -> None:
        """Carry messages until no more come."""
        quiet = 0
        while quiet < 3:
            quiet = 0 if self.carry() else quiet + 1
            time.sleep(0.01)

    def enter(self, selector: str, value: object, event: str) -> None:
        """Put a value into a field, as a person would; nothing is carried yet."""
        script = "const field = root.querySelector(arguments[0]); field.value = arguments[1];"
        self.js(f"{script} field.dispatchEvent(new Event(arguments[2]))", selector, value, event)

    def all(self, selector: str, what: str = "textContent") -> list[Any]:
        script = "return [...root.querySelectorAll(arguments[0])].map((one) => one[arguments[1]])"
        found: list[Any] = self.js(script, selector, what)
        return found

    def press(self, selector: str) -> None:
        self.js("root.querySelector(arguments[0]).click()", selector)
        self.settle()


@pytest.fixture
def feed(folder: Path) -> Feed:
    return Feed(folder / "recipe.toml")


@pytest.fixture
def shown(driver: Chrome, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    widget, notebook = open_widget(feed, monkeypatch, step=7, rows=4)
    driver.get_log("browser")  # what the tests before have left
    yield Shown(driver, widget, notebook)
    complaints = [
        line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"
    ]
    assert complaints == []


def trained_in(feed: Feed, step: int, rows: int) -> int:
    """Count the tokens of the first rows that are asked for, label by label."""
    batch = feed.batch(step)
    asked = np.zeros(batch.input_ids.shape, bool)
    asked[:, 1:] = (batch.loss_weights[:, :-1] > 0) & (batch.position_ids[:, 1:] > 0)
    return int(np.count_nonzero(asked[:rows]))


def test_it_draws_the_rows_of_its_step(shown: Shown, feed: Feed) -> None:
    shown.open()
    assert shown.all(".field", "value") == ["7"] and shown.all(".slider", "value") == ["7"]
    assert shown.all(".row .label b") == ["row 0", "row 1", "row 2", "row 3"]
    assert len(shown.all(".rows .chip.trained")) == trained_in(feed, 7, 4)
    assert shown.all(".rows + .more") == ["… and 2 more rows"]
    shown.press(".rows + .more")
    assert len(shown.all(".row")) == 6


def test_the_slider_the_field_and_the_arrows_wind_and_python_knows_where_they_are(
    shown: Shown, feed: Feed
) -> None:
    shown.open()
    for step in (20, 90, 250):  # faster than any answer
        shown.enter(".slider", step, "input")
    shown.settle()
    assert shown.widget.step == 250
    assert len(shown.all(".rows .chip.trained")) == trained_in(feed, 250, 4)
    shown.press("[aria-label='step on']")
    assert shown.widget.step == 251
    shown.enter(".field", 9999, "change")
    shown.settle()
    assert shown.widget.step == 399, "the last step there is"


def test_python_winds_the_page(shown: Shown, feed: Feed) -> None:
    shown.open()
    shown.widget.step = 123
    shown.js(
        "model.state.step = arguments[0]; model.fire('change:step')", shown.notebook.state["step"]
    )
    shown.settle()
    assert shown.all(".field", "value") == ["123"]
    assert len(shown.all(".rows .chip.trained")) == trained_in(feed, 123, 4)


@pytest.mark.soak
def test_colours_change_and_trained_tokens_stay_underlined(shown: Shown) -> None:
    shown.open()
    before = len(shown.all(".rows .chip.trained"))
    for colour in ("segment", "source", "turn", "loss"):
        shown.press(f"[data-colour={colour}]")
        assert shown.widget.colour == colour
        assert shown.all("[aria-pressed=true]") == [colour]
        assert len(shown.all(".rows .chip.trained")) == before
        has_hues = bool(shown.all(".rows .chip[class*='hue-']"))
        assert has_hues == (colour != "loss")
    line = "return getComputedStyle(root.querySelector('.rows .chip.trained')).borderBottomStyle"
    assert shown.js(line) == "solid"


def test_a_token_that_is_chosen_is_told_by_pointer_and_by_keys(shown: Shown, feed: Feed) -> None:
    shown.open()
    shown.press(".row .chip:nth-of-type(1)")
    told = " ".join(shown.all(".token .facts > *"))
    assert f"id {feed.batch(7).input_ids[0][0]:,}" in told and "document" in told
    shown.js(
        "const pressed = new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true });"
        "root.querySelector('.chips').dispatchEvent(pressed)"
    )
    assert f"id {feed.batch(7).input_ids[0][1]:,}" in " ".join(shown.all(".token .facts > *"))
    assert len(shown.all(".chip.selected")) == 1


def test_hostile_names_and_texts_are_text(shown: Shown, feed: Feed) -> None:
    shown.open()
    name = feed.recipe.sources[0].name
    assert any(name == text for text in shown.all(".label bdi"))
    assert shown.all("img, script") == []
    step = next(hit.step for hit in feed.where(name, 3) if hit.row < 4)
    shown.widget.step = step
    shown.js("model.state.step = arguments[0]; model.fire('change:step')", step)
    shown.settle()
    text = "".join(shown.all(".rows .chip"))
    assert "<script>alert" in text
    assert shown.all("img, script") == []


@pytest.mark.soak
def test_the_notebook_and_the_widget_leave_each_others_style_alone(shown: Shown) -> None:
    shown.open()
    chip = "getComputedStyle(root.querySelector('.rows .chip.trained'))"
    assert shown.js(f"return {chip}.display") == "inline"
    assert shown.js(f"return {chip}.color") == "rgb(13, 90, 54)"
    assert shown.js("return getComputedStyle(theirs).display") == "none"
    assert shown.js("return getComputedStyle(document.body).getPropertyValue('--paper')") == ""


@pytest.mark.soak
def test_dark_follows_the_notebook(shown: Shown) -> None:
    shown.open(theme="false")
    ground = shown.js("return getComputedStyle(root.querySelector('.pane')).backgroundColor")
    assert ground == "rgb(22, 24, 27)"


@pytest.mark.soak
def test_what_python_refuses_is_said_on_the_page(shown: Shown) -> None:
    shown.open()
    error = {"message": "no <b>such</b> step"}
    shown.js("root.querySelector('[aria-label=\"step on\"]').click()")
    (asked,) = shown.js("return model.sent.splice(0)")
    answer = {"number": asked["content"]["number"], "error": error}
    shown.js("model.fire('msg:custom', arguments[0])", answer)
    assert shown.all(".trouble") == ["no <b>such</b> step"]


@pytest.mark.soak
def test_the_rest_of_a_long_row_comes_when_it_is_asked_for(
    driver: Chrome, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(folder / "wide.toml")
    shown = Shown(driver, *open_widget(feed, monkeypatch, rows=2)).open()
    assert len(shown.all(".rows .chip[data-slot]")) == 2 * 512
    assert shown.all(".chips .more")[0] == "… 32,256 more slots"
    shown.press(".chips .more")
    assert shown.all(".chips .more")[0] == "… 31,744 more slots"
    assert len(shown.all(".row:first-child .chip[data-slot]")) == 1024


@pytest.mark.soak
def test_when_it_is_taken_away_it_no_longer_listens(shown: Shown) -> None:
    shown.open()
    shown.js("window.end()")
    assert shown.js("return Object.values(model.heard).flat().length") == 0
