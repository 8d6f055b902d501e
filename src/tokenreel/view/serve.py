"""Serve a page until it is interrupted: a free port, one line with the address, the browser."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path
from tempfile import NamedTemporaryFile

from tokenreel.errors import ConfigError, MissingExtraError
from tokenreel.view.answers import Answers
from tokenreel.view.guards import TOKEN_BYTES, is_anywhere
from tokenreel.view.server import make_app

LOOPBACK = "127.0.0.1"
BACKLOG = 128


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one. ConfigError where that is not allowed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigError(f"no such host: {error}", actual=repr(host)) from error
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise ConfigError(
            f"cannot serve at {host} port {port}: {error.strerror}",
            remedy="choose another port, or leave it out to take a free one",
        ) from error
    return found


def address_of(host: str, port: int, token: str) -> str:
    """Return the address of a page: where the server is anywhere, the loopback one."""
    name = LOOPBACK if is_anywhere(host) else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/{token}/"


def serve(
    answers: Answers,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    announce: Callable[[str], None],
    open_browser: bool = True,
    fragment: str = "",
) -> None:
    """Serve a page until KeyboardInterrupt; `announce` is called with its address.

    `fragment` is what stands behind # in it: the view to begin with.
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("uvicorn", extra="view", purpose="the viewer") from error
    from tokenreel.view.uvicorn_server import PageServer

    token = secrets.token_urlsafe(TOKEN_BYTES)
    with bound_socket(host, port) as listening, ExitStack() as at_end:
        number = listening.getsockname()[1]
        app = make_app(answers, token=token, host=host, port=number)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        address = address_of(host, number, token) + fragment
        announce(address)
        if open_browser and has_screen():
            with suppress(OSError):  # a full disk: the address was printed
                door = at_end.enter_context(door_to(address))
                threading.Thread(target=_open, args=(door,), daemon=True).start()
        PageServer(app, at_end=at_end.close).run(sockets=[listening])


@contextmanager
def door_to(address: str) -> Iterator[str]:
    """Make a file that leads to an address, and is gone at the end; yield its own address.

    Every user of a machine sees the arguments of its programs, and reaches its loopback: a browser
    that was started with the address would tell them the token. The file is read by its owner
    alone.
    """
    target = escape(address, quote=True)
    file = NamedTemporaryFile(  # noqa: SIM115 (closed below, where that may fail)
        "w", prefix="tokenreel-", suffix=".html", encoding="utf-8"
    )
    try:
        file.write(
            '<!doctype html><meta charset="utf-8"><title>tokenreel view</title>'
            '<meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={target}">'
            f'<p><a href="{target}">Open the page</a></p>\n'
        )
        file.flush()
        yield Path(file.name).as_uri()
    finally:
        with suppress(OSError):  # systems clear their temporary folder now and then
            file.close()


def has_screen() -> bool:
    """Tell whether a browser would have a window; in a terminal one would take that over."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open(address: str) -> None:
    with suppress(Exception):  # a machine without a browser: the address was printed
        webbrowser.open(address)
