"""Who may ask, and what every answer says of itself: for a server that any page could reach.

A page of another site can send requests to 127.0.0.1, and by a name that it has lead there (DNS
rebinding) read the answers. So an address begins with a random token, `Host` must be the address
that is served, a foreign `Origin` is refused, and nothing but GET and HEAD is answered. Every
answer, errors too, has the headers below: no script or style but the page's own files, nothing
from outside, no frames, nothing kept.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger(__name__)
TOKEN_BYTES = 16
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/@\s]+)(?::([0-9]{1,5}))?")
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def error_json(
    what: str,
    *,
    where: object = None,
    expected: object = None,
    actual: object = None,
    remedy: object = None,
) -> dict[str, Any]:
    """Return an error in the five parts that every error of tokenreel has."""
    parts = {"what": what, "where": where, "expected": expected, "actual": actual}
    return {"error": {**parts, "remedy": remedy}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that is not answered: the status, and why."""

    status: int
    error: dict[str, Any]


class Guards:
    """Answers of an app, for those alone who know the token and come by the served address.

    `host` and `port` are what the server is bound to; an address such as 0.0.0.0 is reached by
    any of the machine's own addresses and names.
    """

    def __init__(self, app: App, *, token: str, host: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = allowed_hosts(host)
        self._is_anywhere = is_anywhere(host)
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it; every answer gets the headers."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": _with_guards(message.get("headers", ()))}
            await send(message)

        refusal = self.refusal(scope)
        if refusal is not None:
            await _send_json(send_guarded, scope, refusal.status, refusal.error)
            return
        below = scope["path"].split("/", 2)[2:]
        if not below:  # the page's own addresses count from the one with a slash
            await _send_redirect(send_guarded, f"/{self._token}/")
            return
        try:
            path = f"/{below[0]}"
            await self._app({**scope, "path": path, "root_path": ""}, receive, send_guarded)
        except Exception:
            logger.exception("the viewer failed at %r", scope["path"])
            if begun:
                raise
            error = error_json("the viewer failed", remedy="see what the terminal says")
            await _send_json(send_guarded, scope, 500, error)

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is not answered; None if it is."""
        if scope["method"] not in ("GET", "HEAD"):
            error = error_json("the viewer only shows", expected="GET", actual=scope["method"])
            return Refusal(status=405, error=error)
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            error = error_json("this address is not served here", expected="the printed address")
            return Refusal(status=421, error=error)
        if not self._is_own_page(scope):
            error = error_json("a page of another origin may not ask")
            return Refusal(status=403, error=error)
        # "GET *" and "GET ?x" are requests as well, whose path begins with no slash.
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        given = first.encode("utf-8", "replace")
        if not secrets.compare_digest(given, self._token.encode()):
            error = error_json("there is nothing here", expected="the printed address")
            return Refusal(status=404, error=error)
        return None

    def _is_own(self, host: str) -> bool:
        """Tell whether a Host header names this server."""
        name, port = split_host(host)
        if (80 if port is None else port) != self._port:
            return False
        return name in self._hosts or (self._is_anywhere and _is_address(name))

    def _is_own_page(self, scope: Scope) -> bool:
        """Tell whether no page of another origin asks; a link that was followed is no page."""
        origins = _values(scope, b"origin")
        scheme = scope.get("scheme", "http")
        own = [f"{scheme}://{host}".lower() for host in _values(scope, b"host")]
        if origins and [origin.lower() for origin in origins] != own:
            return False
        site, mode = _values(scope, b"sec-fetch-site"), _values(scope, b"sec-fetch-mode")
        return not site or site[0] in ("same-origin", "none") or mode == ["navigate"]


def is_anywhere(host: str) -> bool:
    """Tell whether a host stands for every address of the machine."""
    return host in ("", "0.0.0.0", "::", "*")


def is_loopback(host: str) -> bool:
    """Tell whether a host is reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str) -> frozenset[str]:
    """Return the names by which a server that is bound to a host may be called."""
    hosts = {host.lower()}
    if is_loopback(host) or is_anywhere(host):
        hosts |= {"localhost", "127.0.0.1", "::1"}
    if is_anywhere(host):
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(hosts)


def split_host(header: str) -> tuple[str, int | None]:
    """Return name and port of a Host header; ("", None) for what is none.

    >>> split_host("127.0.0.1:8000"), split_host("[::1]:8000"), split_host("LocalHost")
    (('127.0.0.1', 8000), ('::1', 8000), ('localhost', None))
    """
    found = HOST.fullmatch(header.strip())
    if found is None:
        return "", None
    return found[1].strip("[]").lower(), None if found[2] is None else int(found[2])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _with_guards(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers with those of every answer, which nothing overrides."""
    own = {name.encode(): value.encode() for name, value in HEADERS.items()}
    return [(key, value) for key, value in headers if key.lower() not in own] + [*own.items()]


async def _send_json(send: Send, scope: Scope, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _send_redirect(send: Send, address: str) -> None:
    headers = [(b"location", address.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 308, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
