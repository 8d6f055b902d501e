"""What is built, opened: nothing guesses whether a string is a path or a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from os import PathLike
from typing import Any

from tokenreel.builder.build_settings import BuildSettings
from tokenreel.errors import ConfigError, EmptyError
from tokenreel.text.sources import Spec, open_memory, open_source
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.sources.table import records_of, table_name


def open_inputs(settings: BuildSettings) -> TextSource:
    """Return the one source that is given, read by the settings of reading that are not None."""
    sources = settings.sources
    given = {"sources": sources, "texts": settings.texts, "chats": settings.chats}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ConfigError(
            "a build has one kind of input",
            expected="sources, texts=… or chats=…",
            actual=" and ".join(named) or "none",
        )
    options = settings.reading()
    if settings.prompts and _are_open(sources):
        options.pop("text_key", None)
        _refuse_texts_alone(sources)
    elif settings.prompts:
        options["text_key"] = None  # the whole record: what is not the prompt is kept beside it
    elif settings.is_chat and not _are_open(sources):
        # The whole record is the chat, or the field that text_key names.
        options |= {"text_key": None, "chat_key": options.get("text_key")}
    if sources is None:
        return open_memory(_checked(given[named[0]], named[0]), **options)
    rows = records_of(sources)  # asked once: a reader of Arrow's batches gives them a single time
    if rows is not None:
        return open_memory(_filled(rows, of=sources), **options)
    if not _is_named(sources):
        raise ConfigError(
            "it cannot be told what these sources are",
            expected="paths, opened sources, a table or dataset, or a list of records",
            actual=type(sources).__name__,
            remedy="give texts as texts=…, chats as chats=…",
        )
    return open_source(sources, **options)


def _refuse_texts_alone(sources: Spec | None) -> None:
    """Raise ConfigError for an opened source whose records have lost what is not their text."""
    opened = sources if isinstance(sources, (list, tuple)) else [sources]
    for source in opened:
        if isinstance(source, TextSource) and source.options.text_key is not None:
            raise ConfigError(
                "the opened source gives texts alone, so nothing could be kept beside a prompt",
                where=source.name,
                expected="text_key=None",
                actual=repr(source.options.text_key),
                remedy="open it with text_key=None, and name the field in the build",
            )


def _are_open(sources: Spec | None) -> bool:
    """Return whether all of the sources are open already, and so have options of their own."""
    return isinstance(sources, TextSource) or (
        isinstance(sources, (list, tuple)) and all(isinstance(s, TextSource) for s in sources)
    )


def _is_named(sources: Spec) -> bool:
    """Return whether the type of the sources says what they are: paths, opened sources, records."""
    if isinstance(sources, (list, tuple)):
        return all(map(_is_one, sources)) or all(isinstance(item, Mapping) for item in sources)
    return _is_one(sources)


def _is_one(source: object) -> bool:
    return isinstance(source, (str, PathLike, TextSource))


def _checked(held: object, name: str) -> Iterable[Any]:
    """Return the texts or chats in memory if they can be iterated one by one."""
    if (table := table_name(held)) is not None:
        how = "text_key=…" if name == "texts" else "chat=True"
        raise ConfigError(
            f"a table is not an iterable of {name}",
            expected=f"{name} one by one",
            actual=table,
            remedy=f"pass the table as the first argument, with {how}",
        )
    if isinstance(held, (str, bytes, Mapping)) or not isinstance(held, Iterable):
        raise ConfigError(f"bad {name}", expected="an iterable of them", actual=type(held).__name__)
    if isinstance(held, Sized) and not len(held):
        raise EmptyError(
            f"there are no {name} to build a store of", actual=f"an empty {type(held).__name__}"
        )
    return held


def _filled(rows: Iterable[Any], *, of: object) -> Iterable[Any]:
    """Return the rows of a table if it has any."""
    if isinstance(rows, Sized) and not len(rows):
        raise EmptyError(
            "the table has no rows to build a store of",
            where=type(of).__name__,
            remedy="a reader of batches can be read once: make a new one for every build"
            if hasattr(of, "read_next_batch")
            else None,
        )
    return rows
