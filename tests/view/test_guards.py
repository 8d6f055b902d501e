"""Who may ask: those who know the token, by the served address, from no page of another origin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.view.looking import opened

from tokenreel.view.guards import HEADERS, allowed_hosts, is_loopback, split_host
from tokenreel.view.server import make_app

TOKEN = "a-token-that-nobody-guesses"
HOST = "127.0.0.1:8123"


def client_of(recipe: Path, host: str = "127.0.0.1") -> TestClient:
    app = make_app(opened(recipe), token=TOKEN, host=host, port=8123)
    return TestClient(app, base_url=f"http://{HOST}")


@pytest.fixture(scope="module")
def client(recipe: Path) -> Iterator[TestClient]:
    yield client_of(recipe)


def test_every_answer_has_the_guarding_headers(client: TestClient) -> None:
    asked = {
        f"/{TOKEN}/": 200,
        f"/{TOKEN}": 308,
        f"/{TOKEN}/static/chips.css": 200,
        f"/{TOKEN}/static/nothing.js": 404,
        f"/{TOKEN}/api/target": 200,
        f"/{TOKEN}/api/step/-1": 400,
        f"/{TOKEN}/api/search?q=": 400,
        f"/{TOKEN}/elsewhere": 404,
        "/": 404,
        "/other/api/target": 404,
    }
    for path, status in asked.items():
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code == status, path
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, (path, name)
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")


@pytest.mark.parametrize(
    "path",
    ["/", "/api/target", "/A-TOKEN-THAT-NOBODY-GUESSES/", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", "//"],
)
def test_without_the_token_there_is_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["what"] == "there is nothing here"
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8123",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8123.evil.example",
        "evil.example@127.0.0.1:8123",
        "0.0.0.0:8123",
        "127.0.0.2:8123",
        "10.0.0.1:8123",
        "[::ffff:127.0.0.1]:8123",
        "",
    ],
)
def test_a_foreign_host_is_refused(client: TestClient, host: str) -> None:
    answer = client.get(f"/{TOKEN}/api/target", headers={"host": host})
    assert answer.status_code == 421
    assert "sources" not in answer.text


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8123", "localhost:8123", "LOCALHOST:8123", "[::1]:8123"]
)
def test_the_loopback_has_its_names(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/api/target", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8123"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8123"},  # not the one that was asked
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_a_page_of_another_origin_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get(f"/{TOKEN}/api/target", headers=headers)
    assert answer.status_code == 403
    assert "sources" not in answer.text
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": f"http://{HOST}"},
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},  # a link that is followed
    ],
)
def test_the_page_itself_and_a_followed_link_are_answered(
    client: TestClient, headers: dict[str, str]
) -> None:
    assert client.get(f"/{TOKEN}/api/target", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_looking_is_allowed(client: TestClient, method: str) -> None:
    answer = client.request(method, f"/{TOKEN}/api/target")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_head_is_answered_without_a_body(client: TestClient) -> None:
    answer = client.head(f"/{TOKEN}/api/target")
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_server_for_all_machines_is_called_by_addresses_not_by_foreign_names(
    recipe: Path,
) -> None:
    anywhere = client_of(recipe, host="0.0.0.0")
    for host, status in {
        "10.1.2.3:8123": 200,
        "[fe80::1]:8123": 200,
        "localhost:8123": 200,
        "evil.example:8123": 421,
        "10.1.2.3:9999": 421,
    }.items():
        answer = anywhere.get(f"/{TOKEN}/api/target", headers={"host": host})
        assert answer.status_code == status, host


def test_names_of_hosts_are_read_strictly() -> None:
    assert split_host("a:1:2") == split_host("a/b") == split_host("[::1") == ("", None)
    assert split_host("a:99999x") == ("", None)
    assert is_loopback("::1") and is_loopback("localhost") and is_loopback("127.9.9.9")
    assert not is_loopback("0.0.0.0") and not is_loopback("example.org")
    assert "evil.example" not in allowed_hosts("0.0.0.0")
