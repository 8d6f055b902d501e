"""uvicorn as the viewer needs it: deaf to proxies, and impatient with requests that never end.

uvicorn waits for the rest of a request as long as its line is open, and a program that opens a
thousand lines uses up the files that the process may have open. So lines are looked at every few
seconds: one on which nothing is answered and no request came in that time is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from socket import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenreel.view.guards import App

REQUEST_SECONDS = 10.0  # for a request of a few hundred bytes, on one's own machine


class PageServer(uvicorn.Server):
    """A server of an app, told what to do when it ends, by a signal too."""

    def __init__(self, app: App, *, at_end: Callable[[], None] = lambda: None) -> None:
        config = uvicorn.Config(
            app,
            http=ImpatientProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # nobody may say where a request came from but its line
            ws="none",
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._at_end = at_end

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """End: a signal ends the process right behind this, and no `finally` is reached."""
        self._at_end()
        await super().shutdown(sockets)


class ImpatientProtocol(H11Protocol):
    """One line to a browser, closed if it waits for a request that does not come."""

    _last_request: object = None
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at the line."""
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look at the line no more."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._watch = self.loop.call_later(REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        request: Any = self.cycle  # uvicorn's object for the last request that came
        is_answered = request is None or request.response_complete
        if is_answered and request is self._last_request:
            self.transport.close()
            return
        self._last_request = request
        self._look_later()
