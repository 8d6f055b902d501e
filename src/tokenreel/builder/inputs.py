"""What is built, opened: nothing guesses whether a string is a path or a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.text.sources import Spec, open_memory, open_source
from tokenreel.text.sources.protocol import TextSource
from tokenreel.text.sources.table import records_of


def open_inputs(
    sources: Spec | None,
    *,
    texts: Iterable[str] | None,
    chats: Iterable[Any] | None,
    chat: bool,
    reading: Mapping[str, Any],
) -> TextSource:
    """Return the one source that is given, read by the settings of `reading` that are not None."""
    given = {"sources": sources, "texts": texts, "chats": chats}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ConfigError(
            "a build has one kind of input",
            expected="sources, texts=… or chats=…",
            actual=" and ".join(named) or "none",
        )
    options = {name: value for name, value in reading.items() if value is not None}
    if chat and not _are_open(sources):
        # The whole record is the chat, or the field that text_key names.
        options |= {"text_key": None, "chat_key": options.get("text_key")}
    held = texts if texts is not None else chats
    if isinstance(held, (str, bytes, Mapping)) or not (held is None or isinstance(held, Iterable)):
        raise ConfigError(
            f"bad {named[0]}", expected="an iterable of them", actual=type(held).__name__
        )
    if held is not None:
        return open_memory(held, **options)
    assert sources is not None
    if not _is_named(sources):
        raise ConfigError(
            "it cannot be told what these sources are",
            expected="paths, opened sources, a table or dataset, or a list of records",
            actual=type(sources).__name__,
            remedy="give texts as texts=…, chats as chats=…",
        )
    return open_source(sources, **options)


def _are_open(sources: Spec | None) -> bool:
    """Return whether all of the sources are open already, and so have options of their own."""
    return isinstance(sources, TextSource) or (
        isinstance(sources, (list, tuple)) and all(isinstance(s, TextSource) for s in sources)
    )


def _is_named(sources: Spec) -> bool:
    """Return whether sources say by their type what they are."""
    one = (str, PathLike, TextSource)
    if isinstance(sources, (list, tuple)):
        return all(isinstance(item, one) for item in sources) or all(
            isinstance(item, Mapping) for item in sources
        )
    return isinstance(sources, one) or records_of(sources) is not None
