"""The server of the page: answers as JSON, the page's own files, a search as a stream of lines."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from tokenreel.errors import ConfigError, MissingExtraError, TokenreelError
from tokenreel.view.answers import Answers, NoAnswerError
from tokenreel.view.guards import App, Guards, Receive, Scope, Send, error_json
from tokenreel.view.page_files import INDEX, page_files

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_FIELDS = 20  # parameters of a request


def make_app(answers: Answers, *, token: str, host: str, port: int) -> App:
    """Return the app of a page; only those who know the token are answered."""
    try:
        import starlette  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("starlette", extra="view", purpose="the viewer") from error
    pages = _Pages(answers)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        response = await pages.respond(Request(scope, receive), scope["path"].removeprefix("/"))
        await response(scope, receive, send)

    return Guards(app, token=token, host=host, port=port)


class _Pages:
    """What is answered at each address below the token."""

    def __init__(self, answers: Answers) -> None:
        self._answers, self._files = answers, page_files()

    async def respond(self, request: Request, path: str) -> Response:
        """Return the response to a path, which begins behind the token."""
        if path == "api/search":
            return await self._search(request)
        if path.startswith("api/"):
            return await self._answer(request, path)
        return self._file(INDEX if path == "" else path.removeprefix("static/"), path)

    def _file(self, name: str, path: str) -> Response:
        """Return a file of the page: one of a fixed list, whatever the name."""
        from starlette.responses import Response

        is_page = path in ("", f"static/{name}")
        if name not in self._files or not is_page:
            return _nothing(path)
        return Response(self._files[name].content, media_type=self._files[name].media_type)

    async def _answer(self, request: Request, path: str) -> Response:
        """Return an answer, made in a thread; errors in their five parts."""
        from starlette.concurrency import run_in_threadpool

        def encoded() -> bytes:
            return _encoded(self._answers.answer(path, _parameters(request)))

        try:
            return _response(await run_in_threadpool(encoded))
        except NoAnswerError:
            return _nothing(path)
        except TokenreelError as error:
            return _json(_told(error), status=_status(error))

    async def _search(self, request: Request) -> Response:
        """Answer with a line for everything that is found, until the one who asked is gone."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import StreamingResponse

        try:
            found = await run_in_threadpool(lambda: self._answers.search(_parameters(request)))
        except TokenreelError as error:
            return _json(_told(error), status=_status(error))
        return StreamingResponse(_lines(found), media_type="application/x-ndjson")


async def _lines(found: Iterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield what is found as lines; Starlette ends this where the one who asked has gone.

    Then nobody asks for the next item, and the search is over when the thread that looks for one
    has brought it: in a tenth of a second.
    """
    from starlette.concurrency import run_in_threadpool

    end = object()
    try:
        while (item := await run_in_threadpool(next, found, end)) is not end:
            yield _encoded(item) + b"\n"
    except TokenreelError as error:  # damage that the search came upon
        yield _encoded(_told(error)) + b"\n"


def _parameters(request: Request) -> list[tuple[str, str]]:
    """Return the parameters of a request in order, repeated ones too."""
    text = request.scope["query_string"].decode("latin-1")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise ConfigError("too many parameters", expected=f"<= {MOST_FIELDS}") from error


def _status(error: TokenreelError) -> int:
    return 400 if isinstance(error, ConfigError) else 500


def _told(error: TokenreelError) -> dict[str, Any]:
    told = error.as_dict()
    # JSON has no NaN and no infinity, which damage may be about: they are told as text.
    parts = {
        name: str(part) if isinstance(part, float) and not math.isfinite(part) else part
        for name in ("where", "expected", "actual", "remedy")
        for part in (told.get(name),)
    }
    return error_json(error.what, **parts)


def _nothing(path: str) -> Response:
    return _json(error_json("there is nothing here", where=path[:200]), status=404)


def _json(content: Any, *, status: int = 200) -> Response:
    return _response(_encoded(content), status=status)


def _response(body: bytes, *, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(body, status_code=status, media_type="application/json")


def _encoded(content: Any) -> bytes:
    """Return JSON in ASCII: half a character, which names of files may hold, is escaped too."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")
