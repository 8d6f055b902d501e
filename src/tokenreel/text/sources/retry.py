"""Go on after a source failed in the middle, from the exact record.

Each failure waits (1 s, 2 s, 4 s, … at most a minute) and opens the source again at the
cursor of the next record: nothing comes twice, nothing is lost. The count starts anew with
every record that arrives; `max_retries` failures in a row end it with an error that has the
last failure as its cause. Only failures that may pass are retried: connections, time-outs,
and HTTP 408, 429 and 5xx, never a bad record or a missing file. A host that cannot be reached
before anything has come of it is tried once more, and then held to be out of reach: whoever
is offline is told within seconds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from tokenreel.config.settings import check_settings, declared
from tokenreel.errors import InputError, TokenreelError
from tokenreel.text.sources.source_protocol import Cursor, Step

T = TypeVar("T")

PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
PASSING_NAMES = frozenset({"TransportError", "ClientError", "RequestException", "HTTPException"})
LASTING_NAMES = frozenset({"OfflineModeIsEnabled"})
UNREACHABLE_NAMES = LASTING_NAMES | {
    *("ConnectError", "ConnectTimeout", "NewConnectionError"),
    "LocalEntryNotFoundError",  # the hub was not reached, and nothing is in its cache
}
REACH_TRIES = 2
LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often a failed read is tried again, and how long is waited before.

    >>> [Backoff(retry_delay=1, max_retry_delay=5).wait(attempt) for attempt in range(4)]
    [1, 2, 4, 5]
    """

    max_retries: int = declared(
        5,
        "how often a failed read of the hub is tried again (default: 5)",
        least=0,
        identity=False,
    )
    retry_delay: float = declared(
        1.0, "seconds before the first retry, then doubled (default: 1)", least=0, identity=False
    )
    max_retry_delay: float = declared(
        60.0, "seconds before a retry, at most (default: 60)", least=0, identity=False
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after so many earlier failures in a row."""
        return min(self.max_retry_delay, self.retry_delay * 2**failures)


def retrying(
    open_steps: Callable[[Cursor | None], Iterator[Step]],
    *,
    cursor: Cursor | None = None,
    backoff: Backoff | None = None,
    where: str = "source",
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Step]:
    """Yield the steps of `open_steps(cursor)`, opened again at the next record after a failure."""
    backoff = backoff or Backoff()
    failures, was_reached = 0, cursor is not None
    while True:
        try:
            for item, following in open_steps(cursor):
                cursor, failures, was_reached = following, 0, True
                yield item, following
            return
        except Exception as error:
            if not is_passing(error):
                raise
            _refuse_unreachable(error, where, 0 if was_reached else failures + 1)
            if failures >= backoff.max_retries:
                raise _exhausted(where, failures + 1, error) from error
        sleep(backoff.wait(failures))
        failures += 1


def attempt(
    call: Callable[[], T],
    *,
    backoff: Backoff | None = None,
    where: str = "source",
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return `call()`, made again after failures that may pass."""
    backoff = backoff or Backoff()
    for failures in count():
        try:
            return call()
        except Exception as error:
            if not is_passing(error):
                raise
            _refuse_unreachable(error, where, failures + 1)
            if failures >= backoff.max_retries:
                raise _exhausted(where, failures + 1, error) from error
        sleep(backoff.wait(failures))
    raise AssertionError("counting has no end")


def is_passing(error: BaseException) -> bool:
    """Tell whether a failure may pass by itself.

    >>> is_passing(ConnectionResetError()), is_passing(FileNotFoundError())
    (True, False)
    """
    if isinstance(error, (TokenreelError, *LASTING)):
        return False
    status = getattr(getattr(error, "response", None), "status_code", None)
    status = getattr(error, "status", None) if status is None else status
    if isinstance(status, int):
        return status in PASSING_STATUS
    # HTTP clients have their own trees of errors; their names are what they share.
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & LASTING_NAMES:
        return False
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)) or names & PASSING_NAMES:
        return True
    return error.__cause__ is not None and is_passing(error.__cause__)


def is_unreachable(error: BaseException) -> bool:
    """Tell whether no connection was made: no name resolved, no route, or nobody listening.

    >>> is_unreachable(socket.gaierror()), is_unreachable(ConnectionResetError())
    (True, False)
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, (socket.gaierror, ConnectionRefusedError)) or names & UNREACHABLE_NAMES:
        return True
    before = error.__cause__ or error.__context__
    return before is not None and is_unreachable(before)


def _refuse_unreachable(error: Exception, where: str, tries: int) -> None:
    if tries >= REACH_TRIES and is_unreachable(error):
        raise unreachable(where, error) from error


def unreachable(where: str, error: Exception) -> InputError:
    """Return the error of a host that cannot be reached."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"the host of the dataset cannot be reached ({said})",
        where=where,
        remedy='check the connection; offline, give files that were downloaded, or "hf:" and '
        "the folder of a dataset",
    )


def _exhausted(where: str, attempts: int, error: Exception) -> InputError:
    return InputError(
        f"reading failed {attempts} times in a row: {type(error).__name__}: {error}",
        where=where,
        remedy="check the connection and start again, or raise max_retries",
    )
