"""The viewer against hostile programs on the machine: requests that no browser would send."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.view.looking import MARKUP, Raw, ask_raw, opened, write_recipe
from tests.view.test_server import TOKEN, Served

from tokenreel import StoreWriter, open_store
from tokenreel.view import uvicorn_server
from tokenreel.view.answers import Answers
from tokenreel.view.server import make_app
from tokenreel.view.subject import subject_of

PARTS = {"what", "where", "expected", "actual", "remedy"}


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
        for _ in range(1500):
            writer.add(list(b"nothing to find here " * 40))
    store = open_store(tmp_path / "s")
    answers = Answers([subject_of(store, title="s", tokenizer="byte", force_tokenizer=True)])
    with Served(answers) as address:
        begin = time.monotonic()
        lines = httpx.get(f"{address}api/search", params={"q": "elsewhere"}).text.splitlines()
        assert time.monotonic() - begin > 3 * uvicorn_server.REQUEST_SECONDS
    assert json.loads(lines[-1]) == {"done": True, "found": 0, "more": False}
