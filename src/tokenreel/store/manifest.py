"""The manifest: what a store is, what exists, and the checksums of it all.

    Manifest
    ├── facts      what was decided before the first token (dtype, vocabulary, tokenizer, …)
    ├── splits     name → ShardEntry per shard: counts and checksums
    └── notes      how it was made (engine, versions); no byte of the content depends on it

`manifest.json` is the commit point of a build: a folder with a valid one is a
whole store, a folder without it is not a store yet. Parsing refuses everything
that it does not know; FORMAT.md says the same in prose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.canonical import canonical_bytes, digest, read_canonical
from tokenreel.errors import FormatError

FORMAT = "tokenreel"
VERSION = 1
MANIFEST_NAME = "manifest.json"
TOKEN_DTYPES: dict[str, np.dtype] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
WEIGHT_DTYPES = ("uint8", "float32")
MAX_COUNT = 2**56  # far above any store, far below where a product of two sizes overflows
SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
HEX_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What holds for the whole store and is decided before its first token is written."""

    dtype: str
    vocab_size: int
    block_bytes: int
    shard_bytes: int
    turns: bool = False
    weights: str | None = None
    provenance: bool = False
    tokenizer: Mapping[str, Any] | None = None
    build: Mapping[str, Any] = field(default_factory=dict)
    records: bool = False
    groups: bool = False  # a document is a group of answers to one prompt (text/turns.py)

    @property
    def token_dtype(self) -> np.dtype:
        """The dtype of the token shards, little-endian."""
        return TOKEN_DTYPES[self.dtype]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The files of each shard, in the order they are written."""
        optional = (
            ("turns", self.turns),
            ("weights", self.weights is not None),
            ("origins", self.provenance),
            ("strings", self.provenance),
            ("records", self.records),
            ("objects", self.records),
        )
        return ("bin", "docs", *(kind for kind, present in optional if present))

    def as_json(self) -> dict[str, Any]:
        """Return the facts as they are written: those of LATER_FACTS only where they say yes.

        So a store that does not use them has the bytes and the fingerprint it always had.
        """
        facts = asdict(self)
        return {name: facts[name] for name in facts if name not in LATER_FACTS or facts[name]}


# Facts that came after the first stores of this version: absent means False.
LATER_FACTS = frozenset({"records", "groups"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard: how much is in it, and the checksums that vouch for it.

    `documents` counts entries of the document index; where the previous shard
    `continues`, the first entry is the rest of a document begun there.
    """

    path: str
    tokens: int
    documents: int
    turns: int
    strings_bytes: int
    continues: bool
    docs_sha256: str
    record_sha256: str
    records_bytes: int | None = None  # of its objects; None: the store keeps no records

    def as_json(self) -> dict[str, Any]:
        """Return the entry as it is written; without records, without their size."""
        return {key: getattr(self, key) for key in ENTRY_KEYS if getattr(self, key) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All of a store but its bytes."""

    facts: Facts
    splits: Mapping[str, tuple[ShardEntry, ...]]
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the content: the same wherever the store lies, another for another byte."""
        return _fingerprint(self.facts.as_json(), self._splits())

    def to_bytes(self) -> bytes:
        """Return the bytes of manifest.json."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "facts": self.facts.as_json(),
            "splits": self._splits(),
            "notes": dict(self.notes),
        }
        return canonical_bytes({**content, "sha256": digest(content)})

    def _splits(self) -> dict[str, list[dict[str, object]]]:
        return {name: [entry.as_json() for entry in shards] for name, shards in self.splits.items()}


MANIFEST_KEYS = {"format", "version", "sha256", "fingerprint", "facts", "splits", "notes"}
ENTRY_KEYS = frozenset(item.name for item in fields(ShardEntry))
RECORDS_KEYS = frozenset({"records_bytes"})  # of an entry, where the store keeps records


def _fingerprint(facts: object, splits: Mapping[str, list[dict[str, object]]]) -> str:
    """Hash all but the shards' paths: a store that replaced another has folders of other names."""
    content = {
        name: [_without(entry, "path") for entry in shards] for name, shards in splits.items()
    }
    return digest({"facts": facts, "splits": content})


def _without(value: Mapping[str, object], key: str) -> dict[str, object]:
    return {name: item for name, item in value.items() if name != key}


def file_bytes(facts: Facts, entry: ShardEntry, kind: str) -> int:
    """Return how many bytes a shard's file of this kind has."""
    match kind:
        case "bin":
            return entry.tokens * facts.token_dtype.itemsize
        case "docs":
            return (entry.documents + 1) * 8
        case "turns":
            return entry.turns * 24
        case "weights":
            return entry.tokens * np.dtype(facts.weights).itemsize
        case "origins":
            return entry.documents * 24
        case "strings":
            return entry.strings_bytes
        case "records":
            return (entry.documents + 1) * 8
        case "objects":
            return entry.records_bytes or 0
    raise ValueError(kind)


def read_manifest(path: Path) -> Manifest:
    """Read and check manifest.json; everything unknown or inconsistent raises FormatError."""
    raw = read_canonical(path)
    check = Checker(path)
    check.keys(raw, MANIFEST_KEYS, "manifest")
    check_version(raw, path, FORMAT)
    _check_digest("sha256", raw["sha256"], digest(_without(raw, "sha256")), path)
    facts = parse_facts(raw["facts"], path)
    splits = check.mapping(raw["splits"], "splits")
    manifest = Manifest(
        facts=facts,
        splits={name: _parse_split(name, shards, facts, check) for name, shards in splits.items()},
        notes=check.mapping(raw["notes"], "notes"),
    )
    if not splits or not all(splits.values()):
        raise FormatError("a store has at least one split and each split one shard", where=path)
    paths = [entry.path for shards in manifest.splits.values() for entry in shards]
    if len(set(paths)) != len(paths):
        raise FormatError("two shards have the same path", where=path)
    _check_digest("fingerprint", raw["fingerprint"], _fingerprint(raw["facts"], splits), path)
    return manifest


def _check_digest(name: str, expected: object, actual: str, where: Path) -> None:
    if actual != expected:
        raise FormatError(
            f"the manifest does not match its {name}, so it was damaged or edited",
            where=where,
            expected=expected,
            actual=actual,
            remedy='run "tokenreel verify --repair", or restore the file',
        )


def check_version(raw: Mapping[str, object], where: Path, expected_format: str) -> None:
    """Refuse another format or version; nothing is guessed."""
    if raw["format"] != expected_format:
        raise FormatError(
            "wrong format", where=where, expected=repr(expected_format), actual=repr(raw["format"])
        )
    if raw["version"] != VERSION or type(raw["version"]) is not int:
        raise FormatError(
            "unknown format version",
            where=where,
            expected=VERSION,
            actual=raw["version"],
            remedy="use a tokenreel that knows this version",
        )


def parse_facts(raw: object, where: Path) -> Facts:
    """Check the facts of a store one by one."""
    check = Checker(where)
    facts = check.mapping(raw, "facts")
    later = {name for name in LATER_FACTS if name in facts}
    check.keys(facts, {item.name for item in fields(Facts)} - LATER_FACTS | later, "facts")
    for name in later:
        check.one_of(facts[name], (True,), f"facts.{name}")
    check.one_of(facts["dtype"], tuple(TOKEN_DTYPES), "facts.dtype")
    for name in ("vocab_size", "block_bytes", "shard_bytes"):
        check.count(facts[name], f"facts.{name}", least=1)
    for name in ("turns", "provenance"):
        check.one_of(facts[name], (True, False), f"facts.{name}")
    check.one_of(facts["weights"], (None, *WEIGHT_DTYPES), "facts.weights")
    if facts["tokenizer"] is not None:
        check.mapping(facts["tokenizer"], "facts.tokenizer")
    check.mapping(facts["build"], "facts.build")
    if facts["block_bytes"] % 8:
        check.fail("facts.block_bytes", "a multiple of 8", facts["block_bytes"])
    if "groups" in facts and not facts["turns"]:
        check.fail("facts.groups", "turns, which say where answers begin", "none")
    largest = np.iinfo(facts["dtype"]).max + 1
    if facts["vocab_size"] > largest:
        check.fail("facts.vocab_size", f"<= {largest:,} for {facts['dtype']}", facts["vocab_size"])
    return Facts(**facts)


def _parse_split(name: str, raw: object, facts: Facts, check: Checker) -> tuple[ShardEntry, ...]:
    if not SPLIT_NAME.match(name):
        check.fail("splits", "names of letters, digits, _ and -", repr(name))
    shards = check.sequence(raw, f"splits.{name}")
    entries = tuple(
        _parse_entry(item, f"splits.{name}[{i}]", facts, check) for i, item in enumerate(shards)
    )
    for i, entry in enumerate(entries):
        after = entries[i + 1].documents if i + 1 < len(entries) else 0
        if entry.continues and not (entry.documents and after):
            check.fail(f"splits.{name}[{i}].continues", "a next shard that goes on", "none")
    return entries


def _parse_entry(raw: object, place: str, facts: Facts, check: Checker) -> ShardEntry:
    entry = check.mapping(raw, place)
    records = RECORDS_KEYS if facts.records else frozenset[str]()
    check.keys(entry, ENTRY_KEYS - RECORDS_KEYS | records, place)
    for name in ("tokens", "documents", "turns", "strings_bytes", *records):
        check.count(entry[name], f"{place}.{name}", least=0)
    for name in ("docs_sha256", "record_sha256"):
        if not isinstance(entry[name], str) or not HEX_DIGEST.match(entry[name]):
            check.fail(f"{place}.{name}", "64 hexadecimal digits", repr(entry[name]))
    check.one_of(entry["continues"], (True, False), f"{place}.continues")
    if not is_safe_path(entry["path"]):
        check.fail(f"{place}.path", "a relative path inside the store", repr(entry["path"]))
    return ShardEntry(**entry)


SAFE_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*\Z")


def is_safe_path(path: object) -> bool:
    """Tell whether a path stays inside the store: plain names joined by slashes.

    >>> is_safe_path("train/shard_00000"), is_safe_path("../x"), is_safe_path("/etc/passwd")
    (True, False, False)
    """
    return isinstance(path, str) and SAFE_PATH.match(path) is not None and ".." not in path


class Checker:
    """Raise FormatErrors that name the file and the key."""

    def __init__(self, where: Path) -> None:
        self._where = where

    def fail(self, key: str, expected: object, actual: object) -> None:
        """Say that the value of `key` is wrong."""
        raise FormatError(
            f"wrong value of {key}", where=self._where, expected=expected, actual=actual
        )

    def mapping(self, value: object, key: str) -> dict[str, Any]:
        """Return `value` if it is an object."""
        if not isinstance(value, dict):
            self.fail(key, "an object", type(value).__name__)
        return value  # type: ignore[return-value]

    def sequence(self, value: object, key: str) -> list[Any]:
        """Return `value` if it is a list."""
        if not isinstance(value, list):
            self.fail(key, "a list", type(value).__name__)
        return value  # type: ignore[return-value]

    def keys(self, value: Mapping[str, object], known: Set[str], key: str) -> None:
        """Refuse unknown and missing keys."""
        if set(value) != known:
            unknown, missing = sorted(set(value) - known), sorted(known - set(value))
            raise FormatError(
                f"wrong keys in {key}: unknown {unknown}, missing {missing}", where=self._where
            )

    def count(self, value: object, key: str, *, least: int) -> None:
        """Refuse what is not an integer in [least, 2**56]."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
            self.fail(key, f"an integer from {least} to 2**56", repr(value))

    def one_of(self, value: object, choices: tuple[object, ...], key: str) -> None:
        """Refuse what is not one of `choices`."""
        if not any(
            value is choice or (value == choice and type(value) is type(choice))
            for choice in choices
        ):
            self.fail(key, f"one of {list(choices)}", repr(value))
