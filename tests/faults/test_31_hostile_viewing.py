"""Fault 31: foreign hosts and origins, hostile text and names, paths as parameters."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from tests.view.looking import ask_raw, opened

from tokenreel import Feed, Provenance, Recipe, Source, StoreWriter
from tokenreel.cli.main import full_parser
from tokenreel.view.answers import QUESTIONS, Answers
from tokenreel.view.guards import HEADERS, is_loopback
from tokenreel.view.serve import LOOPBACK, bound_socket
from tokenreel.view.server import make_app
from tokenreel.view.subject import subject_of

TOKEN = "t"
MARKUP = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;b&gt;\x1b]0;x\x07\x1b[31m"
)
PATHS = ["../secret.txt", "/etc/passwd", "..%2fsecret.txt", "file:///etc/passwd", "~/.ssh/id_rsa"]
PATHS += ["0/../../secret.txt", "0\0", "C:\\secret.txt", "//host/share", "%00", "."]


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    """A run over a store in which every name and text is hostile; a secret lies beside it."""
    (tmp_path / "secret.txt").write_text("the secret")
    path = tmp_path / "<b>store & co"
    with StoreWriter(
        path,
        vocab_size=512,
        provenance=True,
        records=True,
        tokenizer={"name": MARKUP, "control_ids": {MARKUP: 300}},
    ) as writer:
        for row in range(8):
            writer.add(
                [*MARKUP.encode(), 300],
                provenance=Provenance(file=f"{MARKUP}/../../secret.txt", row=row, id=MARKUP),
                record={MARKUP: MARKUP},
            )
    source = Source(name=MARKUP, path=path, rows="packed")
    feed = Feed(Recipe(seq_len=200, global_batch_size=2, steps=9, sources=[source]))
    subject = subject_of(feed, title=MARKUP, tokenizer="byte", force_tokenizer=True)
    return Answers([subject, subject])


def served(answers: Answers) -> TestClient:
    app = make_app(answers, token=TOKEN, host=LOOPBACK, port=80)
    return TestClient(app, base_url=f"http://{LOOPBACK}/{TOKEN}/")


EVERYTHING = [
    "api/target",
    "api/reel",
    "api/step/0",
    "api/step/0/row/0",
    "api/step/0/row/0/segments",
    "api/step/0/rows",
    "api/document/0/0",
    "api/where/0/0",
    "api/store/0",
    "api/store/0/0/document/0",
    "api/store/0/0/tokens",
    "api/compare",
    "api/compare/step/0",
]


@contextmanager
def watched_files() -> Iterator[list[tuple[str, bool]]]:
    """Collect the files that are opened, and whether to be written, and all other changes."""
    found: list[tuple[str, bool]] = []
    active = [True]
    changes = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if active and event == "open":
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            found.append((str(arguments[0]), writes))
        elif active and event in changes:
            found.append((str(arguments[0]), True))

    sys.addaudithook(hook)  # cannot be removed, only silenced
    try:
        yield found
    finally:
        active.clear()


def state_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.stat().st_mode, file.read_bytes())
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_hostile_names_and_texts_arrive_as_text_in_json(answers: Answers) -> None:
    client = served(answers)
    for path in EVERYTHING:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
        assert b"\x1b" not in answer.content
        assert b"\x07" not in answer.content
    assert client.get("api/target").json()["sources"][0]["name"] == MARKUP
    document = client.get("api/document/0/0").json()
    assert "".join(text or "" for text in document["texts"][:-1]) == MARKUP
    assert document["record"] == {MARKUP: MARKUP}
    assert document["place"]["id"] == MARKUP
    row = client.get("api/step/0/row/0").json()
    assert row["segments"][0]["provenance"].startswith(f"{MARKUP}/../../secret.txt:")


def test_the_questions_of_these_tests_are_all_there_are() -> None:
    missing = [
        q.pattern.pattern for q in QUESTIONS if not any(map(q.pattern.fullmatch, EVERYTHING))
    ]
    assert missing == ["api/state"]


def test_errors_quote_hostile_parameters_as_text(answers: Answers) -> None:
    client = served(answers)
    for path in (f"api/step/{quote(MARKUP, safe='')}", f"api/reel?{quote(MARKUP)}=1"):
        answer = client.get(path)
        assert answer.status_code in (400, 404)
        assert answer.headers["content-type"] == "application/json"
        assert b"\x1b" not in answer.content


def test_a_search_for_markup_finds_it_as_text(answers: Answers) -> None:
    found = served(answers).get("api/search", params={"q": "<script>alert(1)"})
    hits = [json.loads(line) for line in found.text.splitlines()]
    snippets = [hit["snippet"] for hit in hits if hit.get("snippet")]
    assert snippets
    assert all("<script>alert(1)" in snippet for snippet in snippets)
    assert "html" not in found.headers["content-type"]


def test_a_path_as_a_parameter_opens_no_file(answers: Answers, tmp_path: Path) -> None:
    app = make_app(answers, token=TOKEN, host=LOOPBACK, port=80)
    questions = ["static/{}", "api/step/{}", "api/document/{}/0", "api/document/0/{}", "{}"]
    questions += ["api/store/{}", "api/store/0/{}/document/0", "api/store/0/0/document/{}"]
    parameters = [f"{name}={{}}" for name in ("start", "target", "q", "source", "store", "path")]
    for path in EVERYTHING:  # what is opened once is open
        ask_raw(app, f"/{TOKEN}/{path}")
    with watched_files() as touched:
        for question, path in product(questions, PATHS):
            answer = ask_raw(app, f"/{TOKEN}/{question.format(path)}")
            assert answer.status in (400, 404), (question, path)
            assert b"the secret" not in answer.body and b"root:" not in answer.body
        for parameter, path in product(parameters, PATHS):
            for question in ("api/search", "api/step/0", "api/store/0"):
                answer = ask_raw(app, f"/{TOKEN}/{question}", parameter.format(path).encode())
                assert b"the secret" not in answer.body and b"root:" not in answer.body
    store = str(tmp_path / "<b>store & co")
    outside = [name for name, _ in touched if not name.startswith((store, sys.prefix))]
    assert [name for name in outside if "secret" in name or "passwd" in name] == []
    assert [name for name in outside if name.startswith(str(tmp_path))] == []


def test_looking_changes_no_file(answers: Answers, tmp_path: Path) -> None:
    before = state_of(tmp_path)
    client = served(answers)
    with watched_files() as touched:
        for path in [*EVERYTHING, "api/search?q=alert", "api/step/8", "api/where/0/7"]:
            assert client.get(path).status_code == 200
    assert [name for name, writes in touched if writes and name.startswith(str(tmp_path))] == []
    assert state_of(tmp_path) == before


def test_a_store_that_may_not_be_written_is_looked_at(answers: Answers, tmp_path: Path) -> None:
    store = tmp_path / "<b>store & co"
    folders = [store, *(folder for folder in store.rglob("*") if folder.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        before = state_of(store)
        client = served(opened(store))
        for path in ("api/target", "api/store/0", "api/store/0/0/document/3"):
            assert client.get(path).status_code == 200
        assert state_of(store) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403)],
)
def test_foreign_hosts_and_origins_learn_nothing(
    answers: Answers, headers: dict[str, str], status: int
) -> None:
    client = served(answers)
    for path in ["", "static/main.js", *EVERYTHING]:
        answer = client.get(path, headers=headers)
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}
        assert "alert" not in answer.text


def test_unless_it_is_asked_for_no_other_machine_reaches_the_page() -> None:
    host = full_parser().parse_args(["view", "recipe.toml"]).host
    assert is_loopback(host)
    with bound_socket(host, 0) as listening:
        assert is_loopback(listening.getsockname()[0])
