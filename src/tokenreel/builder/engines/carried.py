"""Errors on their way from a worker process, with everything they say."""

from __future__ import annotations

from collections.abc import Callable

from tokenreel.builder.encode import Encoder
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk
from tokenreel.errors import TokenreelError


def encode_or_fail(encoder: Callable[[], Encoder], chunk: Chunk) -> Summary | TokenreelError:
    """Open the encoder and encode a chunk; an error of ours is returned in its place."""
    try:
        return encoder().encode(chunk)
    except TokenreelError as error:
        if error.__cause__ is not None:  # it stays behind when the error is pickled
            error.add_note(f"caused by {type(error.__cause__).__name__}: {error.__cause__}")
        return error


def take(result: Summary | TokenreelError) -> Summary:
    """Return the summary, or raise the error that came in its place."""
    if isinstance(result, TokenreelError):
        raise result
    return result
