"""The built site in a real browser: it asks no other host for anything, and nothing is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from tests.docs.blocks import ROOT
from tests.view.browser.driving import FLAGS, find_browser

PAGES = ("", "start/", "how-to/mix/", "understand/", "reference/python/", "compare/")
pytestmark = pytest.mark.soak  # builds the whole site


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Build the site as make docs does, and serve it."""
    subprocess.run([sys.executable, ROOT / "scripts/make_docs.py"], check=True)
    handler = partial(Quiet, directory=str(ROOT / "build/site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    """A browser that keeps a log of what pages ask for."""
    browser, program = find_browser()
    options = Options()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = Chrome(options=options, service=Service(program))
    yield started
    started.quit()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_no_other_host_and_complains_of_nothing(
    driver: Chrome, address: str, page: str
) -> None:
    driver.get(address + page)
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert any(url.endswith(".css") for url in asked)
    outside = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert outside == [] and driver.get_log("browser") == []


def test_drawings_take_the_colours_of_the_theme(driver: Chrome, address: str) -> None:
    driver.get(address + "understand/")
    colours = [driver.execute_script(INK)]
    driver.execute_script("document.body.setAttribute('data-md-color-scheme', 'slate')")
    colours.append(driver.execute_script(INK))
    assert colours == ["rgb(28, 31, 36)", "rgb(230, 232, 235)"]


def test_what_is_copied_from_a_session_is_a_program(driver: Chrome, address: str) -> None:
    driver.get(address)
    copied = driver.execute_script(COPIED)
    assert "import tokenreel" in copied and ">>>" not in copied and "(2, 256)" not in copied
    compile(copied, "copied", "exec")


# What the theme's button does before it takes the text.
COPIED = """
const code = document.querySelector('.highlight code')
code.setAttribute('data-md-copying', '')
return code.innerText
"""
INK = "return getComputedStyle(document.querySelector('.drawing .d-text')).fill"
