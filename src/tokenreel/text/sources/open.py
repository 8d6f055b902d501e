"""One door to all sources: what is asked for decides what is opened.

    "web.jsonl.zst", "docs/*.parquet", "notes/"     files, globs, folders
    ["a.jsonl", "b/"]                               several, in this order
    "hf:owner/name/config:split@revision"           a dataset of the hub, or hf: and a folder
    "fineweb-edu"                                   a named source (named.py)
    a data frame, an Arrow table, a dataset         their rows, as records (table.py)
    InMemory(texts), an iterator, a list of chats   in memory

A list of strings always means paths, never documents.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenreel.config.hints import did_you_mean
from tokenreel.errors import ConfigError
from tokenreel.text.sources.chain import Chained
from tokenreel.text.sources.files import find_files
from tokenreel.text.sources.hub import HubDataset, HubSource
from tokenreel.text.sources.memory import InMemory
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.named import NAMED, NamedHub, named_source
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.retry import Backoff
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.sources.table import records_of

logger = logging.getLogger(__name__)

MOST_ENDINGS = 8  # that are named, of files that were left out

Spec = str | os.PathLike[str] | TextSource | Iterable[Any]


def open_source(spec: Spec, *, kind: str | None = None, **settings: Any) -> TextSource:
    """Return the source that `spec` names.

    `kind` ("jsonl", "parquet", "text") says how files are read where their names do not.
    `settings` are the fields of ReadOptions (text_key="text", id_key, on_bad, limits), for
    datasets those of HubDataset (config, split, revision, streaming) and Backoff
    (max_retries, retry_delay), for named sources those of their defaults.

    >>> source = open_source(iter(["one", "two"]))
    >>> [record.text for part in source.ranges(1) for record in source.read(part)]
    ['one', 'two']
    """
    specs = _as_specs(spec)
    groups = [(door, list(run)) for door, run in groupby(specs, _door)]
    given = settings if kind is None else {"kind": kind, **settings}
    _check_settings(given, [_allowed(door, run) for door, run in groups])
    sources: list[TextSource] = []
    for door, run in groups:
        if door == "files":
            sources.append(_open_files(run, kind, settings))
        else:
            sources.extend(_open_one(door, item, settings) for item in run)
    return sources[0] if len(sources) == 1 else Chained(sources)


def open_memory(items: Iterable[Any], **settings: Any) -> InMemory:
    """Return a source of documents or chats in memory; `settings` are fields of ReadOptions."""
    _check_settings(settings, [_names(ReadOptions)])
    return InMemory(items, options=_options(settings))


def _as_specs(spec: Spec) -> list[Any]:
    if isinstance(spec, (str, os.PathLike, TextSource)):
        return [spec]
    if isinstance(spec, (list, tuple)):
        if not spec:
            raise ConfigError("no sources", expected="at least one path, dataset or document")
        if all(isinstance(item, (str, os.PathLike, TextSource)) for item in spec):
            return list(spec)
    return [spec]


def _door(spec: Any) -> str:
    if isinstance(spec, TextSource):
        return "source"
    if isinstance(spec, os.PathLike):
        return "files"
    if not isinstance(spec, str):
        return "memory"
    if spec.startswith("hf:"):
        return "hub"
    if spec in NAMED:
        _check_unambiguous(spec)
        return "named"
    return "files"


def _check_unambiguous(name: str) -> None:
    if Path(name).exists():
        raise ConfigError(
            "the name means both a named source and a path",
            where=name,
            remedy=f'write "./{name}" for the path',
        )


def _allowed(door: str, specs: Sequence[Any]) -> set[str]:
    read = _names(ReadOptions)
    if door == "hub":
        return read | _names(HubDataset) - {"id"} | _names(Backoff)
    if door == "named":
        kinds = {type(NAMED[spec]) for spec in specs}
        retries = _names(Backoff) if NamedHub in kinds else set()
        return read | retries | {name for kind in kinds for name in _names(kind)}
    if door == "source":
        return set()
    return read | {"kind"} if door == "files" else read


def _check_settings(settings: dict[str, Any], allowed: list[set[str]]) -> None:
    known = set().union(*allowed)
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"{name} does not apply to this source",
                expected=f"one of {', '.join(sorted(known))}" if known else "no setting",
                remedy=did_you_mean(name, sorted(known)) or "leave it out",
            )


def _open_files(specs: Sequence[Any], kind: str | None, settings: dict[str, Any]) -> TextSource:
    files, ignored = find_files(specs, kind=kind)
    name = "+".join(Path(spec).name or "files" for spec in specs)
    if ignored:
        logger.warning("%s: %s", name, _said_of(ignored))
    return FileSource(files, name=name, options=_options(settings), ignored=ignored)


def _said_of(ignored: Sequence[str]) -> str:
    """Return the sentence about the files that a search left out, counted by ending.

    >>> _said_of(["a/d.csv", "e.csv", "g.json"])
    '3 files were left out (2 .csv, 1 .json); a glob with kind="text" or "jsonl" reads them'
    """
    counts = Counter(Path(name).suffix.lower() or "without an ending" for name in ignored)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    told = [f"{count:,} {ending}" for ending, count in ranked]
    more = [f"and {len(told) - MOST_ENDINGS:,} endings more"] if len(told) > MOST_ENDINGS else []
    files = "1 file was" if len(ignored) == 1 else f"{len(ignored):,} files were"
    endings = ", ".join([*told[:MOST_ENDINGS], *more])
    return f'{files} left out ({endings}); a glob with kind="text" or "jsonl" reads them'


def _open_one(door: str, spec: Any, settings: dict[str, Any]) -> TextSource:
    if isinstance(spec, TextSource):
        return spec
    if door == "memory":
        rows = records_of(spec)
        return open_memory(spec if rows is None else rows, **settings)
    mine = {key: value for key, value in settings.items() if key in _allowed(door, [spec])}
    if door == "named":
        return named_source(spec, **mine)
    dataset = HubDataset.parse(spec, **_chosen(HubDataset, mine))
    backoff = Backoff(**_chosen(Backoff, mine))
    return HubSource(dataset, options=_options(mine), backoff=backoff)


def _options(settings: dict[str, Any]) -> ReadOptions:
    return ReadOptions(**_chosen(ReadOptions, settings))


def _chosen(kind: type, settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in _names(kind)}


def _names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}
