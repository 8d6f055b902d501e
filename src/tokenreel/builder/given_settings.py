"""The settings of a build as its caller gave them: kept with the build, and compared in words.

They decide no byte: what the bytes depend on are the facts (build_plan.py), which are hashes and
numbers. People changed a word, so what differs is said in that word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, fields
from os import PathLike, fspath
from pathlib import PurePath
from typing import Any

from tokenreel.builder.build_settings import BuildSettings
from tokenreel.canonical import digest
from tokenreel.display import count_of
from tokenreel.errors import differing_fields
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.tokenizers import EndToken

INPUTS = {"sources": "record", "texts": "text", "chats": "chat"}  # and what one of them is
READING = frozenset([*INPUTS, "text_key", "id_key", "kind", "max_record_bytes"])
MAX_FILES = 2000  # beyond these it is not said which of them changed
SHOWN_FILES = 5
SHOWN_CHARACTERS = 120


def settings_of(
    settings: BuildSettings, source: TextSource, *, template: str | None, end: EndToken | None
) -> dict[str, Any]:
    """Return the settings by name, ready for JSON, with the template and end token picked."""
    chosen: dict[str, Any] = {
        item.name: getattr(settings, item.name)
        for item in fields(settings)
        if item.metadata["identity"] or item.name in (*INPUTS, "tokenizer")
    }
    for name, noun in INPUTS.items():
        chosen[name] = None if chosen[name] is None else _described_input(chosen[name], noun)
    if chosen["sources"] is not None:
        read = source.options
        key = read.chat_key or read.text_key or settings.text_key
        chosen |= {"text_key": key, "id_key": read.id_key}
    chosen["tokenizer"] = _described(settings.tokenizer)
    if isinstance(chosen["policy"], Mapping):
        chosen["policy"] = dict(chosen["policy"])
    chosen |= {"chat": template is not None, "template": template}
    chosen["end_token"] = None if end is None else end.token
    # What a chat or a document has not is left out; a document without an end is a choice.
    unused = {"policy"} if template is None else {"end_token"}
    if settings.prompts:
        unused = {"policy", "end_token"}
    return {
        name: value
        for name, value in chosen.items()
        if name not in unused and (value is not None or name == "end_token")
        if not (name in ("pairs", "prompts") and not value)
    }


def _described(value: object) -> str:
    """Return a path as it was given, and the type of an object in memory."""
    if isinstance(value, (str, PathLike)):
        return str(fspath(value))
    return value.name if isinstance(value, TextSource) else f"{type(value).__name__} in memory"


def _described_input(value: object, noun: str) -> str | list[str]:
    """Return sources as they were given; of objects in memory their type and number, never content.

    >>> _described_input(["one", "two"], "text"), _described_input(["a.txt"], "record")
    ('a list of 2 texts in memory', ['a.txt'])
    """
    named = (str, PathLike, TextSource)
    if noun == "record":
        if isinstance(value, named):
            return _described(value)
        if isinstance(value, (list, tuple)) and isinstance(value[0], named):
            left_out = [f"and {len(value) - MAX_FILES:,} more"] if len(value) > MAX_FILES else []
            return [_described(item) for item in value[:MAX_FILES]] + left_out
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    amount = count_of(len(value), noun) if isinstance(value, Sized) else f"{noun}s"
    return f"{article} {kind} of {amount} in memory"


def portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the folders of this machine, as they go into the manifest."""
    return {name: _portable(value) for name, value in settings.items()}


def _portable(value: object) -> object:
    if isinstance(value, list):
        return [_portable(item) for item in value]
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return value


def note_of(settings: Mapping[str, Any], source: TextSource) -> dict[str, Any]:
    """Return what an unfinished build says of itself, for the message to another."""
    files = dict(_files(source.identity()))
    return {"settings": settings, "files": files if len(files) <= MAX_FILES else {}}


def _files(identity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and hash of every file of a source, and of the sources in it."""
    for file in identity.get("files", ()):
        if isinstance(file, Mapping):
            yield str(file.get("name")), str(file.get("xxh3"))
    for inner in (*identity.get("sources", ()), identity.get("source")):
        if isinstance(inner, Mapping):
            yield from _files(inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a build says of itself: its note, and the facts of its store."""

    note: Mapping[str, Any]
    facts: Mapping[str, Any]

    def fact(self, name: str) -> object:
        """Return a digest of what the store is made of: source, tokenizer or template."""
        if name == "tokenizer":
            return (self.facts.get("tokenizer") or {}).get("fingerprint")
        return (self.facts.get("build") or {}).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between two builds: {name: (before, after)}, and in words."""

    differing: dict[str, tuple[object, object]]
    told: str


def changes(before: Made, after: Made) -> Changes:
    """Return the settings, files and definitions that are not what they were."""
    old, new = before.note.get("settings") or {}, after.note.get("settings") or {}
    differing = {
        name: (old.get(name), new.get(name))
        for name in [*new, *(name for name in old if name not in new)]
        if digest(old.get(name)) != digest(new.get(name)) and _matters(name, before, after)
    }
    words = {
        name: f"{name}: {_shown(first)} → {_shown(second)}"
        for name, (first, second) in differing.items()
    }
    for name, (first, second, told) in _contents(before, after, differing).items():
        differing[name] = first, second
        words[name] = told
    if not differing:
        differing = _by_name(before.facts, after.facts)
        words = {name: f"{name}: {_shown(b)} → {_shown(a)}" for name, (b, a) in differing.items()}
    return Changes(differing=differing, told=", ".join(words.values()))


def _matters(name: str, before: Made, after: Made) -> bool:
    """Tell whether a setting with another value means another build.

    The same file may go by two names; and what becomes of a bad record is no other build.
    """
    if name == "on_bad":
        return False
    facts = {**dict.fromkeys(INPUTS, "source"), "tokenizer": "tokenizer", "template": "template"}
    return name not in facts or before.fact(facts[name]) != after.fact(facts[name])


def _contents(
    before: Made, after: Made, named: Mapping[str, object]
) -> dict[str, tuple[object, object, str]]:
    """Return the inputs that have the same name and another content."""
    found: dict[str, tuple[object, object, str]] = {}
    for name in ("tokenizer", "template"):
        if name not in named and before.fact(name) != after.fact(name):
            called = (after.note.get("settings") or {}).get(name, "it")
            found[name] = before.fact(name), after.fact(name), f"{name}: {called} has changed"
    if before.fact("source") != after.fact("source") and not READING & set(named):
        old, new = before.note.get("files") or {}, after.note.get("files") or {}
        told = _told_files(old, new) if old and new else ""
        settings = after.note.get("settings") or {}
        called = next((name for name in INPUTS if name in settings), "sources")
        told = f"{called}: {told or 'what they hold has changed'}"
        found[called] = before.fact("source"), after.fact("source"), told
    return found


def _told_files(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [
        f"{name} changed" for name in before if after.get(name, before[name]) != before[name]
    ]
    changed += [f"{name} is gone" for name in before if name not in after]
    changed += [f"{name} is new" for name in after if name not in before]
    more = len(changed) - SHOWN_FILES
    return ", ".join(changed[:SHOWN_FILES]) + (f" and {more:,} more" if more > 0 else "")


def _by_name(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """Return the facts that differ, those of the build one by one: all that an old build says.

    `before` has facts too that no caller of `build` gives, as the size of a block.
    """
    found = differing_fields({name: before.get(name) for name in after}, after)
    if "build" in found:
        del found["build"]
        found |= differing_fields(before.get("build") or {}, after.get("build") or {})
    return found


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
