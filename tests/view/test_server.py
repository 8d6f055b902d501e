"""The server over HTTP: JSON in ASCII, the page's own files, searches that end with who asks."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.view.looking import ask_raw, opened

from tokenreel import Provenance, StoreWriter, open_store
from tokenreel.text.tokenizers import byte_tokenizer
from tokenreel.view import server
from tokenreel.view.answers import Answers
from tokenreel.view.guards import HEADERS, App
from tokenreel.view.page_files import page_files
from tokenreel.view.serve import bound_socket
from tokenreel.view.server import make_app
from tokenreel.view.subject import subject_of
from tokenreel.view.uvicorn_server import PageServer

TOKEN = "t0ken"


def app_of(answers: Answers) -> App:
    return make_app(answers, token=TOKEN, host="127.0.0.1", port=80)


def client_of(answers: Answers) -> TestClient:
    return TestClient(app_of(answers), base_url=f"http://127.0.0.1/{TOKEN}/")


@pytest.fixture(scope="module")
def app(recipe: Path) -> App:
    return app_of(opened(recipe))


@pytest.fixture(scope="module")
def client(recipe: Path) -> TestClient:
    return client_of(opened(recipe))


def test_answers_are_those_of_the_modules(client: TestClient, recipe: Path) -> None:
    answers = opened(recipe)
    for path in ("api/target", "api/reel", "api/step/3", "api/step/3/row/2", "api/where/1/4"):
        answer = client.get(path)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == json.loads(json.dumps(answers.answer(path)))


def test_the_page_is_served_and_each_of_its_files(client: TestClient) -> None:
    page = client.get("")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.content == page_files()["index.html"].content
    names = set(page_files())
    assert {"index.html", "main.js", "chips.css"} <= names
    for name in names:
        answer = client.get(f"static/{name}")
        assert answer.content == page_files()[name].content
        assert "text/html" not in answer.headers["content-type"] or name.endswith(".html")


@pytest.mark.parametrize(
    "path",
    [
        "static/",
        "static/../server.py",
        "static/../../errors.py",
        "static/..\\server.py",
        "static//etc/passwd",
        "static/etc/passwd",
        "static/main.js\0.css",
        "server.py",
        "../server.py",
        "//etc/passwd",
        "api/../static/main.js",
    ],
)
def test_no_path_leads_to_another_file(recipe: Path, path: str) -> None:
    answer = ask_raw(app_of(opened(recipe)), f"/{TOKEN}/{path}")
    assert answer.status == 404
    assert json.loads(answer.body)["error"]["what"] == "there is nothing here"


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(max_size=20), query=st.binary(max_size=40))
def test_any_address_is_answered_in_words_and_never_fails(
    app: App, path: str, query: bytes
) -> None:
    for address in (path, f"api/{path}", f"api/step/{path}", "api/reel", "api/search"):
        answer = ask_raw(app, f"/{TOKEN}/{address}", query)
        assert answer.status in (200, 400, 404)
        if answer.status >= 400:
            error = json.loads(answer.body)["error"]
            assert set(error) == {"what", "where", "expected", "actual", "remedy"}


class Broken(Answers):
    """Answers with a bug in them."""

    def answer(self, path: str, query: Iterable[tuple[str, str]] = ()) -> Any:
        raise RuntimeError("a secret path")


def test_a_bug_is_told_in_words_and_nothing_of_it_leaves(recipe: Path) -> None:
    answer = ask_raw(app_of(Broken(opened(recipe).subjects)), f"/{TOKEN}/api/target")
    assert answer.status == 500
    error = json.loads(answer.body)["error"]
    assert set(error) == {"what", "where", "expected", "actual", "remedy"}
    assert b"secret" not in answer.body
    assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


def test_damage_that_an_answer_comes_upon_is_told_with_its_file(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9) as writer:
        writer.add([1, 2, 3])
    app = app_of(opened(tmp_path / "s"))
    next((tmp_path / "s").rglob("*.bin")).write_bytes(b"")
    for path in ("document/0", "tokens"):
        answer = ask_raw(app, f"/{TOKEN}/api/store/0/0/{path}")
        assert answer.status == 500
        assert json.loads(answer.body)["error"]["where"].endswith("shard_00000.bin")


def test_too_many_parameters_are_refused(client: TestClient) -> None:
    answer = client.get("api/reel?" + "&".join(f"x{n}=1" for n in range(50)))
    assert answer.status_code == 400
    assert answer.json()["error"]["what"] == "too many parameters"


def test_a_search_is_a_line_for_everything_that_is_found(client: TestClient) -> None:
    answer = client.get("api/search", params={"q": "Story 34."})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["document"] for line in lines if "document" in line] == [34]
    assert lines[-1] == {"done": True, "found": 1, "more": False}


def test_half_characters_in_names_arrive(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9, provenance=True) as writer:
        writer.add([1, 2], provenance=Provenance(file="bad\udcff.txt", row=0))
    answer = client_of(opened(tmp_path / "s")).get("api/store/0/0/document/0")
    assert answer.content.isascii()
    assert answer.json()["provenance"] == "bad\udcff.txt:1"


class SlowTokenizer:
    """A tokenizer of one's own that takes its time, and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls, self._bytes = 0, byte_tokenizer()
        self.vocab_size, self.control_ids = self._bytes.vocab_size, self._bytes.control_ids
        self.fingerprint = "slow"

    def encode_batch(self, texts: Sequence[str]) -> Any:
        return self._bytes.encode_batch(texts)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        self.calls += 1
        time.sleep(0.001)
        return "".join(f"{number:04d}" for number in np.asarray(ids).tolist())


class Served:
    """A real server on a free port, in a thread."""

    def __init__(self, answers: Answers) -> None:
        self.socket = bound_socket("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        app = make_app(answers, token=TOKEN, host="127.0.0.1", port=self.port)
        self.server = PageServer(app)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))

    def __enter__(self) -> str:
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"

    def __exit__(self, *error: object) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[str, SlowTokenizer]]:
    """The address of a store of 4,000 different ids, whose texts take seconds to find."""
    with StoreWriter(tmp_path / "s", vocab_size=5_000) as writer:
        for start in range(0, 4_000, 40):
            writer.add(np.arange(start, start + 40))
    tokenizer = SlowTokenizer()
    found = subject_of(open_store(tmp_path / "s"), title="s", tokenizer=tokenizer)
    with Served(Answers([found])) as address:
        yield address, tokenizer


def test_a_search_ends_when_the_one_who_asked_has_gone(slow: tuple[str, SlowTokenizer]) -> None:
    address, tokenizer = slow
    with httpx.stream("GET", f"{address}api/search", params={"q": "nowhere"}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"progress": 0.0}
        assert 0 < json.loads(next(lines))["progress"] < 0.5
    time.sleep(0.5)  # until the piece that was under way is done
    left = tokenizer.calls
    time.sleep(0.5)
    assert tokenizer.calls == left < 3_500


def test_a_server_that_ends_leaves_a_search_in_peace() -> None:
    looking, seen = threading.Event(), []

    def search() -> Iterator[dict[str, Any]]:
        for number in range(100):
            seen.append(number)
            looking.set()
            time.sleep(0.1)
            yield {"progress": number / 100}

    async def ended() -> None:
        async def send_all() -> None:
            async for _ in server._lines(search()):
                pass

        task = asyncio.create_task(send_all())
        while not looking.is_set():
            await asyncio.sleep(0.01)
        task.cancel()  # while a thread looks for the next
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ended())
    time.sleep(0.3)
    assert len(seen) <= 2


def test_others_are_answered_while_a_search_goes_on(slow: tuple[str, SlowTokenizer]) -> None:
    address, tokenizer = slow
    with httpx.stream("GET", f"{address}api/search", params={"q": "nowhere"}) as answer:
        next(answer.iter_lines())
        calls = tokenizer.calls
        assert httpx.get(f"{address}api/store/0").json()["splits"][0]["documents"] == 100
        assert calls < 3_500
