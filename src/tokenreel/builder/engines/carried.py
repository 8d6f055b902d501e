"""Errors on their way from a worker process, with everything they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenreel.builder.encode import Encoder
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import TokenreelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error taken apart: its class may ask for more arguments than it keeps."""

    kind: type[TokenreelError]
    message: tuple[object, ...]
    parts: dict[str, Any]
    cause: str | None

    def error(self) -> TokenreelError:
        """Put the error together again."""
        error = self.kind.__new__(self.kind)
        error.args = self.message
        error.__dict__.update(self.parts)
        if self.cause is not None:
            error.add_note(f"caused by {self.cause}")
        return error


def encode_or_fail(encoder: Callable[[], Encoder], chunk: Chunk) -> Summary | Failed:
    """Open the encoder and encode a chunk; an error of ours is returned, in parts."""
    try:
        return encoder().encode(chunk)
    except TokenreelError as error:
        cause = error.__cause__
        return Failed(
            kind=type(error),
            message=error.args,
            parts=dict(error.__dict__),
            cause=None if cause is None else f"{type(cause).__name__}: {cause}",
        )


def take(result: Summary | Failed) -> Summary:
    """Return the summary, or raise the error that came in its place."""
    if isinstance(result, Failed):
        raise result.error()
    return result
