"""The server of the page: answers as JSON, the page's own files, a search as a stream of lines."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from tokenreel.errors import ConfigError, MissingExtraError, TokenreelError
from tokenreel.view.answers import Answers, NoAnswerError
from tokenreel.view.guards import App, Guards, error_json
from tokenreel.view.page_files import INDEX, page_files

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger(__name__)
MOST_FIELDS = 20  # parameters of a request


def make_app(answers: Answers, *, token: str, host: str, port: int) -> App:
    """Return the app of a page; only those who know the token are answered."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtraError("starlette", extra="view", purpose="the viewer") from error
    pages = _Pages(answers)
    app = Starlette(
        routes=[
            Route("/", pages.index),
            Route("/static/{name}", pages.file),
            Route("/api/search", pages.search),
            Route("/api/{path:path}", pages.answer),
            Route("/{path:path}", pages.nothing),
        ]
    )
    app.router.redirect_slashes = False
    return Guards(app, token=token, host=host, port=port)


class _Pages:
    """What is answered at each address below the token."""

    def __init__(self, answers: Answers) -> None:
        self._answers, self._files = answers, page_files()

    async def index(self, request: Request) -> Response:
        return self._file(INDEX)

    async def file(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        from starlette.responses import Response

        file = self._files.get(name)
        if file is None:
            return _nothing(name)
        return Response(file.content, media_type=file.media_type)

    async def nothing(self, request: Request) -> Response:
        return _nothing(request.url.path)

    async def answer(self, request: Request) -> Response:
        path = f"api/{request.path_params['path']}"
        return await _answered(lambda: self._answers.answer(path, _parameters(request)), path)

    async def search(self, request: Request) -> Response:
        """Answer with a line for everything that is found, until the one who asked is gone."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import StreamingResponse

        try:
            found = await run_in_threadpool(lambda: self._answers.search(_parameters(request)))
        except TokenreelError as error:
            return _json(_told(error), status=_status(error))
        return StreamingResponse(_lines(found), media_type="application/x-ndjson")


async def _lines(found: Iterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield what is found as lines; Starlette ends this where the one who asked has gone."""
    from starlette.concurrency import run_in_threadpool

    end = object()
    try:
        while (item := await run_in_threadpool(next, found, end)) is not end:
            yield _encoded(item) + b"\n"
    except TokenreelError as error:  # damage that the search came upon
        yield _encoded(_told(error)) + b"\n"
    finally:
        close = getattr(found, "close", None)
        if close is not None:
            close()


async def _answered(answer: Callable[[], Any], path: str) -> Response:
    """Answer with what a function returns, made in a thread; errors in their five parts."""
    from starlette.concurrency import run_in_threadpool

    def encoded() -> bytes:
        return _encoded(answer())

    try:
        return _response(await run_in_threadpool(encoded))
    except NoAnswerError:
        return _nothing(path)
    except TokenreelError as error:
        return _json(_told(error), status=_status(error))


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
    names = ("where", "expected", "actual", "remedy")
    return error_json(error.what, **{name: told.get(name) for name in names})


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
