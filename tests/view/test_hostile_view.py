"""The viewer against hostile pages, hostile programs on the machine, and hostile stores."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from tests.view.browser.driving import FLAGS, Page, find_browser, serving
from tests.view.browser.driving import Served as ServedPage
from tests.view.looking import Raw, ask_raw, opened, write_recipe
from tests.view.test_server import TOKEN, Served

from tokenreel import Provenance, StoreWriter, open_store
from tokenreel.view import uvicorn_server
from tokenreel.view.answers import Answers
from tokenreel.view.export import export_page
from tokenreel.view.serve import door_to
from tokenreel.view.server import make_app
from tokenreel.view.subject import subject_of

PARTS = {"what", "where", "expected", "actual", "remedy"}
MARKUP = "</script><script>window.ran=1</script><img src=x onerror='window.ran=2'>"
ODD = "\u2028\u2029\x00\x1b[31m\u202e\ud800\udfff]]>--><!--"
HOSTILE = MARKUP + ODD


def ask(target: Path | Answers, path: str, query: str = "", **options: Any) -> Raw:
    """Ask about what is at a path, by the app alone."""
    answers = opened(target, **options) if isinstance(target, Path) else target
    app = make_app(answers, token=TOKEN, host="127.0.0.1", port=80)
    return ask_raw(app, f"/{TOKEN}/{path}", query.encode())


@pytest.fixture(scope="module")
def address(recipe: Path) -> Iterator[str]:
    with Served(opened(recipe)) as address:
        yield address


def send(address: str, request: bytes) -> bytes:
    """Send bytes as they are and return the answer, or nothing where the line was cut."""
    port = int(address.split(":")[2].split("/")[0])
    request = request.replace(b"PORT", str(port).encode())
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        try:
            line.sendall(request)
            return b"".join(iter(lambda: line.recv(65_536), b""))
        except (ConnectionResetError, BrokenPipeError):
            return b""


END = b"Connection: close\r\n\r\n"
OWN = b"Host: 127.0.0.1:PORT\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /t0ken/api/target HTTP/1.0\r\n\r\n", 421),
        (b"GET /t0ken/api/target HTTP/1.1\r\n" + END, 400),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: evil.example\r\n" + OWN + END, 400),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: evil.example\r\n" + END, 421),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: localhost.:PORT\r\n" + END, 421),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: [::1%25lo]:PORT\r\n" + END, 421),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: [::ffff:7f00:1]:PORT\r\n" + END, 421),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: 2130706433:PORT\r\n" + END, 421),
        (b"GET /t0ken/api/target HTTP/1.1\r\nHost: 127.1:PORT\r\n" + END, 421),
        (b"GET http://evil.example/t0ken/api/target HTTP/1.1\r\n" + OWN + END, 404),
        (b"CONNECT evil.example:443 HTTP/1.1\r\n" + OWN + END, 405),
        (b"OPTIONS * HTTP/1.1\r\n" + OWN + END, 405),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n" + OWN + END, None),
        (b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n" + OWN + END, None),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_odd_requests_are_refused_and_tell_nothing(
    address: str, request_: bytes, status: int | None
) -> None:
    """A status of None: the line may be cut as well, before an answer was read."""
    answer = send(address, request_)
    assert b"sources" not in answer and b"Traceback" not in answer
    if status is not None or answer:
        assert answer.startswith(b"HTTP/1.1 %d" % (status or 400))


@pytest.mark.parametrize("target", [b"*", b"?x", b"t0ken/", b"x/t0ken/api/target"])
def test_a_request_without_a_path_is_refused_in_words(address: str, target: bytes) -> None:
    answer = send(address, b"GET " + target + b" HTTP/1.1\r\n" + OWN + END)
    assert answer.split(b" ")[1] == b"404"
    assert b"content-security-policy" in answer
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["what"] == "there is nothing here"


@pytest.mark.parametrize(
    "header",
    [
        b"Origin: http://evil.example\r\n",
        b"Origin: http://127.0.0.1:PORT\r\nOrigin: http://evil.example\r\n",
        b"Origin: http://127.0.0.1:PORT.evil.example\r\n",
        b"Origin: http://127.0.0.1:PORT@evil.example\r\n",
        b"Origin: \r\n",
        b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n",
        b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
        b"X-Forwarded-Host: 127.0.0.1:PORT\r\nOrigin: https://evil.example\r\n",
        b"X-Forwarded-Proto: https\r\nOrigin: https://127.0.0.1:PORT\r\n",
    ],
)
def test_a_page_of_another_origin_learns_nothing_even_with_the_token(
    address: str, header: bytes
) -> None:
    answer = send(address, b"GET /t0ken/api/target HTTP/1.1\r\n" + OWN + header + END)
    assert answer.split(b" ")[1] == b"403"
    assert b"sources" not in answer and b"access-control" not in answer.lower()


def test_a_wrong_token_is_answered_alike_wherever_it_is_wrong(recipe: Path) -> None:
    app = make_app(opened(recipe), token="a" * 22, host="127.0.0.1", port=80)
    guesses = ("b" + "a" * 21, "a" * 21 + "b", "a" * 21, "a" * 23, "A" * 22, "", "%61" * 22)
    answers = [ask_raw(app, f"/{guess}/") for guess in guesses]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.body for answer in answers}) == 1


NUMBERS = ["-1", "1e3", "0x10", "1_000", "+1", " 1", "1.0", "\uff11", "9" * 30, "nan", "", "1;2"]
TRICKS = ["..", "%2e%2e", "..%2f..%2fetc", "..\\..", "\0", "train", "__proto__", "' or 1=1", "*"]
PLACES = (
    "api/step/{}",
    "api/step/{}/row/0",
    "api/step/0/row/{}",
    "api/document/{}/0",
    "api/document/0/{}",
    "api/where/0/{}",
    "api/store/{}",
    "api/store/0/{}/document/0",
    "api/store/0/0/document/{}",
    "api/store/0/{}/tokens",
    "api/compare/step/{}",
)


@pytest.mark.parametrize("place", PLACES)
def test_no_number_in_a_path_is_anything_but_a_number(recipe: Path, place: str) -> None:
    answers = opened(recipe)
    for word in (*NUMBERS, *TRICKS):
        answer = ask(answers, place.format(word))
        assert answer.status in (400, 404), word
        assert set(json.loads(answer.body)["error"]) == PARTS


def test_no_range_makes_an_answer_large(recipe: Path) -> None:
    answers, most = opened(recipe), str(2**53)
    for path, names in (
        ("api/reel", ("start", "stop", "columns")),
        ("api/step/0", ("world_size",)),
        ("api/step/0/row/0", ("start", "stop")),
        ("api/step/0/rows", ("start", "stop", "slots")),
        ("api/document/0/0", ("start", "stop")),
        ("api/where/0/0", ("start",)),
        ("api/store/0/0/document/0", ("start", "stop")),
        ("api/store/0/0/tokens", ("start", "stop")),
        ("api/search", ("source", "store", "target")),
    ):
        for name in names:
            for value in (most, "9" * 18, str(10**12), "-1"):
                answer = ask(answers, path, f"{name}={value}" + "&q=x" * (path == "api/search"))
                assert answer.status in (200, 400), (path, name, value)
                assert len(answer.body) < 2_000_000


def test_a_run_without_end_is_wound_to_its_last_step_at_once(stores: Path, tmp_path: Path) -> None:
    head = "seq_len = 16\nglobal_batch_size = 4\n"
    source = {"name": "t", "path": str(stores / "texts"), "rows": "packed"}
    answers = opened(write_recipe(tmp_path / "endless.toml", head, source))
    begin = time.monotonic()
    last = 2**44 // 4
    for path, query in (
        (f"api/step/{last - 1}", ""),
        (f"api/step/{last}", ""),
        ("api/reel", f"start=0&stop={last}&columns=2000"),
        ("api/where/0/0", f"start={last - 1}"),
    ):
        assert ask(answers, path, query).status in (200, 400)
    assert time.monotonic() - begin < 20


def test_words_of_a_request_never_become_markup_or_headers(address: str) -> None:
    for path in ("%3Cscript%3Ealert(1)%3C/script%3E", "a%0d%0aX-Evil:%201", "static/%3Cimg%3E"):
        for query in ("", "?q=%3Cimg%20src%3Dx%3E%0d%0aX-Evil:1"):
            answer = httpx.get(f"{address}{path}{query}")
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "x-evil" not in answer.headers
    answer = httpx.get(f"{address}api/search", params={"q": MARKUP})
    assert answer.headers["content-type"].startswith("application/x-ndjson")


def test_head_of_a_search_has_no_body(address: str) -> None:
    answer = httpx.head(f"{address}api/search", params={"q": "nowhere"})
    assert (answer.status_code, answer.content) == (200, b"")


def test_many_searches_at_once_leave_room_for_other_questions(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300) as writer:
        for number in range(200):
            writer.add(list((f"text {number} " * 40).encode()))
    store = open_store(tmp_path / "s")
    answers = Answers([subject_of(store, title="s", tokenizer="byte", force_tokenizer=True)])

    def search() -> None:
        httpx.get(f"{address}api/search", params={"q": "nowhere"}, timeout=60)

    with Served(answers) as address:
        threads = [threading.Thread(target=search) for _ in range(30)]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        assert httpx.get(f"{address}api/target", timeout=60).status_code == 200
        waited = time.monotonic() - begin
        for thread in threads:
            thread.join()
    assert waited < 10


def test_requests_that_never_end_do_not_keep_others_waiting(address: str) -> None:
    port = int(address.split(":")[2].split("/")[0])
    lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        for line in lines:
            line.sendall(b"GET /t0ken/api/target HTTP/1.1\r\nHost: 127")
        assert httpx.get(f"{address}api/target", timeout=10).status_code == 200
    finally:
        for line in lines:
            line.close()


BEGUN = b"GET /t0ken/api/target HTTP/1.1\r\nHost: 127"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        BEGUN,
        b"GET /t0ken/api/target HTTP/1.1\r\n" + OWN + b"\r\n" + BEGUN,
        b"GET /t0ken/api/target HTTP/1.1\r\n" + OWN + b"Content-Length: 5\r\n\r\na",
    ],
    ids=["nothing", "half a request", "half of the second", "half a body"],
)
def test_a_request_that_never_ends_is_cut(
    address: str, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(uvicorn_server, "REQUEST_SECONDS", 0.3)
    port = int(address.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.settimeout(4)  # before an idle line is closed by itself
        line.sendall(begun.replace(b"PORT", str(port).encode()))
        while line.recv(65_536):
            pass


def test_an_answer_that_takes_longer_than_a_request_may_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_server, "REQUEST_SECONDS", 0.05)
    with StoreWriter(tmp_path / "s", vocab_size=300) as writer:
        for _ in range(400):
            writer.add(list(b"nothing to find here " * 40))
    store = open_store(tmp_path / "s")
    answers = Answers([subject_of(store, title="s", tokenizer="byte", force_tokenizer=True)])
    with Served(answers) as address:
        begin = time.monotonic()
        lines = httpx.get(f"{address}api/search", params={"q": "elsewhere"}).text.splitlines()
        assert time.monotonic() - begin > 3 * uvicorn_server.REQUEST_SECONDS
    assert json.loads(lines[-1]) == {"done": True, "found": 0, "more": False}


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
