"""The viewer against hostile pages, and hostile stores in a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from tests.view.browser.driving import FLAGS, Page, find_browser, serving
from tests.view.browser.driving import Served as ServedPage
from tests.view.looking import MARKUP, opened, write_recipe

from tokenreel import Provenance, StoreWriter
from tokenreel.view.export import export_page
from tokenreel.view.serve import door_to

ODD = "\u2028\u2029\x00\x1b[31m\u202e\ud800\udfff]]>--><!--"
HOSTILE = MARKUP + ODD


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a recipe in which every name and every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    tokenizer = {"name": MARKUP, "control_ids": {HOSTILE[:-12]: 5, "__proto__": 6}}
    file = MARKUP + "\u2028\x1b[31m\u202e\udcff"
    with StoreWriter(
        folder / "store", vocab_size=300, provenance=True, records=True, tokenizer=tokenizer
    ) as writer:
        writer.notes["report"] = {
            "settings": {"texts": MARKUP, "__proto__": 1},
            "files": [[MARKUP]],
        }
        for number in range(12):
            tokens = [5, *MARKUP.encode(), *"\u2028\x00\x1b[31m\u202e".encode(), 6]
            record = {"__proto__": {"a": MARKUP}, MARKUP: ODD[:8], "n": number}
            origin = Provenance(file=file, row=number, id=MARKUP)
            writer.add(tokens, provenance=origin, record=record)
    names = ("__proto__", "constructor", MARKUP)
    head = "seq_len = 64\nglobal_batch_size = 6\nsteps = 20\n"
    sources = [{"name": n.replace('"', "'"), "path": "store", "rows": "packed"} for n in names]
    weights = '"__proto__" = 1.0, "constructor" = 2.0'
    write_recipe(
        folder / "recipe.toml",
        head,
        *sources,
        tail=f"[[phases]]\nstart_step = 9\nweights = {{ {weights} }}\n",
    )
    return folder


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    """A browser to which evil.example is this machine, as after DNS rebinding."""
    browser, program = find_browser()
    options = Options()
    options.binary_location = browser
    for flag in (*FLAGS, "--host-resolver-rules=MAP evil.example 127.0.0.1"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = Chrome(options=options, service=Service(program))
    yield started
    started.quit()


def check_harmless(page: Page, *, scripts: int) -> None:
    """Nothing of the store ran, became an element or was fetched; nothing was complained of."""
    assert page.js("return window.ran") is None
    assert page.js("return ({}).a") is None and page.js("return ({}).x") is None
    assert page.count("img, iframe, object, embed, form[action], base, [onerror]") == 0
    assert page.count("script") == scripts
    text = page.js("return document.body.textContent + document.title")
    assert not any(mark in text for mark in ("\x1b", "\u202e", "\u2028", "\x00"))
    own = page.served.address.split("#")[0].rsplit("/", 1)[0]
    assert all(request.startswith(own) for request in page.requests())
    assert page.complaints() == []


def test_a_store_of_hostile_names_and_texts_is_only_shown(driver: Chrome, hostile: Path) -> None:
    with serving(opened(hostile / "recipe.toml")) as served:
        page = Page(driver, served)
        page.complaints()
        for fragment in (
            "step=3&row=1&slot=2",
            "step=9&colour=source&row=2&slot=2",
            "view=document&source=0&document=3",
            "view=store&store=0",
        ):
            page.open(fragment)
            page.wait("return document.querySelector('.chip')")
            check_harmless(page, scripts=1)


@pytest.mark.parametrize("name", ["recipe.toml", "store"])
def test_an_exported_file_of_a_hostile_store_runs_and_loads_nothing(
    driver: Chrome, hostile: Path, tmp_path: Path, name: str
) -> None:
    answers, path = opened(hostile / name), tmp_path / "view.html"
    export_page(answers, path)
    written = path.read_bytes()
    assert MARKUP.encode() not in written and b"\xe2\x80\xa8" not in written
    page = Page(driver, ServedPage(answers=answers, address=path.as_uri()))
    page.complaints()
    page.open()
    page.wait("return document.querySelector('.chip')")
    check_harmless(page, scripts=2)


def test_two_hostile_recipes_are_compared_as_text(driver: Chrome, hostile: Path) -> None:
    other = hostile / "other.toml"
    other.write_text((hostile / "recipe.toml").read_text().replace("steps = 20", "seed = 5"))
    with serving(opened(hostile / "recipe.toml", other)) as served:
        page = Page(driver, served)
        page.complaints()
        page.open("view=compare&step=3")
        page.wait("return document.querySelector('#main').textContent.includes('seed')")
        check_harmless(page, scripts=1)


EVIL = """<!doctype html><title>evil</title><body><script>
window.got = {};
const at = "ADDRESS";
const kept = (name) => (value) => { window.got[name] = value; };
fetch(at + "api/target").then((r) => r.text())
  .then(kept("fetch"), () => kept("fetch")("refused"));
fetch(at + "api/target", { mode: "no-cors" }).then((r) => r.text())
  .then(kept("opaque"), () => kept("opaque")("refused"));
for (const [tag, name] of [["script", "src"], ["link", "href"], ["img", "src"], ["iframe", "src"],
                           ["object", "data"], ["embed", "src"]]) {
  const element = document.createElement(tag);
  if (tag === "link") element.rel = "stylesheet";
  element.onload = () => { window.got[tag] = "loaded"; };
  element.onerror = () => { window.got[tag] = "refused"; };
  element[name] = at + (tag === "script" ? "static/main.js" : tag === "link" ? "static/chips.css"
    : tag === "img" ? "static/icon.svg" : "");
  document.body.append(element);
}
const socket = new WebSocket(at.replace("http", "ws") + "api/target");
socket.onopen = () => { window.got.socket = "opened"; };
socket.onerror = () => { window.got.socket = "refused"; };
</script>"""


@contextmanager
def evil_page(address: str) -> Iterator[str]:
    """Serve a page of another origin that wants what is at an address, whose token it knows."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = EVIL.replace("ADDRESS", address).encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
def test_a_page_of_another_origin_gets_nothing_in_a_real_browser(
    driver: Chrome, recipe: Path, host: str
) -> None:
    """Not even with the token: of another port, another name of this machine, a foreign name."""
    with serving(opened(recipe)) as served, evil_page(served.address) as evil:
        driver.get(evil.replace("127.0.0.1", host))
        page = Page(driver, served)
        names = ("fetch", "opaque", "script", "link", "img", "socket")
        page.wait("return arguments[0].every((name) => name in window.got)", names)
        got = page.js("return window.got")
        framed = page.js(
            "return [...document.querySelectorAll('iframe')].map(f => !!f.contentDocument)"
        )
    assert {name: got[name] for name in names} == dict.fromkeys(names, "refused")
    assert framed == [False]
    driver.get_log("browser")


def test_a_foreign_name_that_leads_here_is_refused_in_a_real_browser(
    driver: Chrome, recipe: Path
) -> None:
    with serving(opened(recipe)) as served:
        driver.get(served.address.replace("127.0.0.1", "evil.example"))
        text = driver.execute_script("return document.body.textContent")
        assert json.loads(text)["error"]["what"] == "this address is not served here"
        assert driver.execute_script("return document.scripts.length") == 0
    driver.get_log("browser")


def test_the_file_that_the_browser_opens_leads_to_the_page(driver: Chrome, recipe: Path) -> None:
    with serving(opened(recipe)) as served, door_to(f"{served.address}#step=3") as door:
        driver.get(door)
        page = Page(driver, served)
        page.wait("return document.querySelector('.chip')")
        assert driver.current_url == f"{served.address}#view=batch&step=3"
        assert page.js("return document.referrer") == ""
    driver.get_log("browser")
