"""Sources with a name: well-known datasets with defaults, every one overridable.

fineweb-edu  HuggingFaceFW/fineweb-edu, CC-MAIN-2024-10, streamed, shuffled in blocks of 10,000
wikitext     Salesforce/wikitext, wikitext-103-raw-v1; a row is a line, many rows are empty
roam         a folder of Markdown; split by a seeded list of its files
gutenberg    a folder of text; a stub with no ranges where the folder is absent
dolly15k     databricks/databricks-dolly-15k, whole rows
oasst1       OpenAssistant/oasst1, message trees as conversations (oasst.py says how)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenreel.errors import ConfigError, InputError
from tokenreel.seeds import derive_key
from tokenreel.text.sources.files import SourceFile, find_files
from tokenreel.text.sources.hub import HubDataset, HubSource
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.oasst import MessageTrees
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.retry import Backoff
from tokenreel.text.sources.shuffle import Shuffled
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource

DEFAULT_SEED = 42
SPLITS = ("train", "val", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHub:
    """Hold the defaults of a dataset of the hub."""

    id: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = False
    text_key: str | None = "text"
    id_key: str | None = None
    buffer: int | None = None
    seed: int = DEFAULT_SEED
    trees: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFolder:
    """Hold the defaults of a folder of documents."""

    path: str
    suffixes: tuple[str, ...]
    split: str = "all"
    val_frac: float = 0.1
    seed: int = DEFAULT_SEED
    may_be_absent: bool = False


NAMED: Mapping[str, NamedHub | NamedFolder] = MappingProxyType(
    {
        "fineweb-edu": NamedHub(
            id="HuggingFaceFW/fineweb-edu",
            config="CC-MAIN-2024-10",
            streaming=True,
            id_key="id",
            buffer=10_000,
        ),
        "wikitext": NamedHub(id="Salesforce/wikitext", config="wikitext-103-raw-v1"),
        "roam": NamedFolder(path="data/roam", suffixes=(".md", ".markdown")),
        "gutenberg": NamedFolder(path="data/gutenberg", suffixes=(".txt",), may_be_absent=True),
        "dolly15k": NamedHub(id="databricks/databricks-dolly-15k", text_key=None),
        "oasst1": NamedHub(
            id="OpenAssistant/oasst1", text_key=None, id_key="message_id", trees=True
        ),
    }
)


class Absent(TextSource):
    """A source whose data is not there: it has no ranges, and `reason` says why."""

    def __init__(self, name: str, *, reason: str) -> None:
        self.name = name
        self.options = ReadOptions()
        self.reason = reason

    def identity(self) -> dict[str, Any]:
        """Return the identity of a source without records."""
        return {"kind": "absent"}

    def ranges(self, target_bytes: int) -> list[Range]:
        """Return no range."""
        return []

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield nothing."""
        return iter(())


def named_source(name: str, **overrides: Any) -> TextSource:
    """Return a named source; overrides are the fields of its defaults and of ReadOptions.

    >>> named_source("gutenberg", path="no/such/folder").reason
    'no folder no/such/folder'
    """
    if name not in NAMED:
        raise ConfigError("no such source", expected=", ".join(NAMED), actual=repr(name))
    defaults = NAMED[name]
    own = {field.name for field in fields(defaults)}
    defaults = replace(defaults, **{key: overrides[key] for key in own & overrides.keys()})
    others = {key: value for key, value in overrides.items() if key not in own}
    if isinstance(defaults, NamedFolder):
        return _folder_source(name, defaults, ReadOptions(**others))
    return _hub_source(name, defaults, others)


def split_files(
    files: Sequence[SourceFile], *, seed: int, val_frac: float
) -> tuple[list[SourceFile], list[SourceFile]]:
    """Return (train, val), each in the order given: a keyed choice by name, file by file."""

    def key(file: SourceFile) -> int:
        return derive_key("file split", seed, file.name)

    num_val = num_validation(len(files), val_frac)
    chosen = {file.name for file in sorted(files, key=key)[:num_val]}
    train = [file for file in files if file.name not in chosen]
    return train, [file for file in files if file.name in chosen]


def num_validation(count: int, val_frac: float) -> int:
    """Return how many of so many files or documents are validation, where they are counted off.

    They are val_frac of all, rounded; of two or more at least one, unless val_frac is 0, and
    never all.

    >>> num_validation(10, 0.25), num_validation(3, 0.01), num_validation(2, 0.9)
    (2, 1, 1)
    """
    if not 0 <= val_frac < 1:
        raise ConfigError(
            "val_frac is not a fraction", expected="0 <= val_frac < 1", actual=val_frac
        )
    if not val_frac or count < 2:
        return 0
    return min(max(round(count * val_frac), 1), count - 1)


def _folder_source(name: str, chosen: NamedFolder, options: ReadOptions) -> TextSource:
    folder = Path(chosen.path)
    if chosen.split not in SPLITS:
        raise ConfigError("no such split", expected=", ".join(SPLITS), actual=repr(chosen.split))
    if not folder.is_dir():
        if chosen.may_be_absent:
            return Absent(name, reason=f"no folder {chosen.path}")
        raise InputError(
            f"the folder of {name!r} is not there",
            where=folder,
            remedy="give the path of the folder in place of the name",
        )
    found, ignored = find_files([folder], kind="text")
    files = [file for file in found if file.path.suffix.lower() in chosen.suffixes]
    others = [file.name for file in found if file not in files]
    train, val = split_files(files, seed=chosen.seed, val_frac=chosen.val_frac)
    parts = {"train": train, "val": val, "all": files}
    return FileSource(parts[chosen.split], name=name, options=options, ignored=ignored + others)


def _hub_source(name: str, chosen: NamedHub, others: dict[str, Any]) -> TextSource:
    retries = {field.name for field in fields(Backoff)} & others.keys()
    backoff = Backoff(**{key: others.pop(key) for key in retries})
    options = ReadOptions(text_key=chosen.text_key, id_key=chosen.id_key, **others)
    dataset = HubDataset(
        id=chosen.id,
        config=chosen.config,
        split=chosen.split,
        revision=chosen.revision,
        streaming=chosen.streaming,
    )
    source: TextSource = HubSource(dataset, name=name, options=options, backoff=backoff)
    if chosen.trees:
        source = MessageTrees(source)
    if chosen.buffer is not None:
        source = Shuffled(source, buffer=chosen.buffer, seed=chosen.seed)
    return source
