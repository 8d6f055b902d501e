"""How tests start a server, a browser, and drive the page in it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tokenreel.view.answers import Answers
from tokenreel.view.serve import LOOPBACK, address_of, bound_socket
from tokenreel.view.server import make_app

MUST_HAVE = "TOKENREEL_NEEDS_BROWSER"  # set to 1: a missing browser is a failure
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--force-color-profile=srgb",
)
PATIENCE_SECONDS = 20.0


def find_browser() -> tuple[str, str]:
    """Return the paths of the browser and its driver; skip, or fail, where there are none."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is not None and driver is not None:
        return browser, driver
    words = "no browser was found (chromium and chromedriver): the viewer's page is not tested"
    if os.environ.get(MUST_HAVE) == "1":
        pytest.fail(f"{words}, and {MUST_HAVE}=1 says that it must be")
    pytest.skip(words)


def start_browser() -> Chrome:
    """Return a browser without a window that keeps a log of what pages complain of."""
    browser, driver = find_browser()
    options = Options()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Chrome(options=options, service=Service(driver))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A page that is served: its answers, and its address."""

    answers: Answers
    address: str

    def answer(self, path: str, **query: object) -> Any:
        """Return what the server would answer, asked without it."""
        return self.answers.answer(path, [(name, str(value)) for name, value in query.items()])


@contextmanager
def serving(answers: Answers) -> Iterator[Served]:
    """Serve a page from a thread."""
    with bound_socket(LOOPBACK, 0) as listening:
        port = listening.getsockname()[1]
        app = make_app(answers, token="token", host=LOOPBACK, port=port)
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield Served(answers=answers, address=address_of(LOOPBACK, port, "token"))
        finally:
            server.should_exit = True
            thread.join(10)


class Page:
    """The viewer's page in a browser."""

    def __init__(self, driver: Chrome, served: Served) -> None:
        self.driver, self.served = driver, served

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def paint(self, scheme: str) -> None:
        """Have the system prefer light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, fragment: str = "", *, address: str | None = None) -> Page:
        """Open the page anew, and wait until something of it is drawn."""
        self.driver.get("about:blank")
        self.driver.get((address or self.served.address) + (f"#{fragment}" if fragment else ""))
        self.wait("return document.querySelector('#main').getAttribute('aria-busy') === 'false'")
        self.wait("return !document.querySelector('#main > .quiet, .chips.waiting')")
        return self

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object) -> Any:
        """Return the first true value of a script."""
        stop = time.monotonic() + PATIENCE_SECONDS
        while not (value := self.js(script, *arguments)):
            if time.monotonic() > stop:
                raise AssertionError(f"never true: {script} at {self.driver.current_url}")
            time.sleep(0.02)
        return value

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        stop = time.monotonic() + PATIENCE_SECONDS
        while not (value := condition()):
            if time.monotonic() > stop:
                raise AssertionError(f"never true, at {self.driver.current_url}")
            time.sleep(0.02)
        return value

    def find(self, selector: str) -> WebElement:
        self.wait("return document.querySelector(arguments[0])", selector)
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements of a selector."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        found: list[str] = self.js(script, selector)
        return found

    def count(self, selector: str) -> int:
        number: int = self.js("return document.querySelectorAll(arguments[0]).length", selector)
        return number

    def click(self, selector: str) -> None:
        self.js("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys, wherever the focus is."""
        chain = ActionChains(self.driver, duration=0)
        for key in keys:
            if shift:
                chain.key_down(Keys.SHIFT)
            chain.send_keys(key)
            if shift:
                chain.key_up(Keys.SHIFT)
        chain.perform()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def pointer(self) -> ActionChains:
        return ActionChains(self.driver, duration=30)

    @property
    def state(self) -> dict[str, str]:
        """The words of the address."""
        script = "return Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
        words: dict[str, str] = self.js(script)
        return words

    def shows_step(self, step: int) -> None:
        """Wait until the rows of a step are drawn, as the server has them."""
        first = self.served.answer(f"api/step/{step}/rows", start=0, stop=1, slots=16)[0]
        wanted = [self.chip_text(text) for text in first["texts"][:8]]
        script = (
            'return [...document.querySelectorAll(\'.row[data-row="0"] .chip, '
            '.chunk[data-row="0"] .chip\')].slice(0, 8).map((e) => e.textContent)'
        )
        self.wait_for(lambda: self.js(script) == wanted)

    @staticmethod
    def chip_text(text: str | None) -> str:
        """Return how a chip shows a text without anything that must be shown by its number."""
        if text is None:
            return "◦"
        if text.startswith("<|") and text.endswith("|>"):
            return text[2:-2]
        return text.replace("\n", "⏎").replace("\t", "⇥")

    def complaints(self) -> list[str]:
        """Return what the browser logged since the last time: errors, and refusals of the CSP."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return every address that the page asked for."""
        script = "return performance.getEntries().map((e) => e.name).filter((n) => n.includes(':'))"
        asked: list[str] = self.js(script)
        return asked

    def box(self, selector: str) -> dict[str, float]:
        script = (
            "return JSON.stringify(document.querySelector(arguments[0]).getBoundingClientRect())"
        )
        found: dict[str, float] = json.loads(self.js(script, selector))
        return found
