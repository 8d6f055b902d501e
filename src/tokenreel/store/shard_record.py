"""The record of one shard: its counts, the facts of its store, its block checksums.

`shard_00000.json` is written after all other files of the shard are durable, so
its presence means that the shard is finished. The records are the ledger of an
unfinished build; they also hold all that a lost manifest can be rebuilt from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from tokenreel.canonical import canonical_bytes, parse_canonical, read_limited
from tokenreel.errors import FormatError
from tokenreel.store.block_writer import root_digest
from tokenreel.store.manifest import (
    HEX_DIGEST,
    RECORDS_KEYS,
    VERSION,
    Checker,
    Facts,
    ShardEntry,
    check_version,
    file_bytes,
    parse_facts,
)

RECORD_FORMAT = "tokenreel-shard"
RECORD_SUFFIX = ".json"
KEYS = {"format", "version", "facts", "split", "number", "tokens", "documents", "turns"}
KEYS |= {"strings_bytes", "continues", "blocks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """What a finished shard says about itself; `blocks` are hex digests by file kind."""

    facts: Facts
    split: str
    number: int
    tokens: int
    documents: int
    turns: int
    strings_bytes: int
    continues: bool
    blocks: Mapping[str, list[str]]
    records_bytes: int | None = None

    def to_bytes(self) -> bytes:
        """Return the bytes of the record file."""
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        content |= {"format": RECORD_FORMAT, "version": VERSION, "facts": self.facts.as_json()}
        return canonical_bytes({key: content[key] for key in content if content[key] is not None})

    def entry(self, path: str) -> ShardEntry:
        """Return the shard's entry in the manifest; `path` is relative to the store."""
        return ShardEntry(
            path=path,
            tokens=self.tokens,
            documents=self.documents,
            turns=self.turns,
            strings_bytes=self.strings_bytes,
            continues=self.continues,
            records_bytes=self.records_bytes,
            docs_sha256=root_digest(self.blocks["docs"]),
            record_sha256=hashlib.sha256(self.to_bytes()).hexdigest(),
        )


def read_record(path: Path) -> ShardRecord:
    """Read and check the record of a shard."""
    return parse_record(read_limited(path), where=path)


def parse_record(data: bytes, *, where: Path) -> ShardRecord:
    """Check the bytes of a record; everything unknown or inconsistent raises FormatError."""
    raw = parse_canonical(data, where=where)
    check = Checker(where)
    check.keys(raw, KEYS | (RECORDS_KEYS & set(raw)), "record")
    check_version(raw, where, RECORD_FORMAT)
    facts = parse_facts(raw["facts"], where)
    records = RECORDS_KEYS if facts.records else frozenset[str]()
    check.keys(raw, KEYS | records, "record")
    for name in ("number", "tokens", "documents", "turns", "strings_bytes", *records):
        check.count(raw[name], name, least=0)
    check.one_of(raw["continues"], (True, False), "continues")
    blocks = check.mapping(raw["blocks"], "blocks")
    check.keys(blocks, set(facts.kinds), "blocks")
    content = {key: value for key, value in raw.items() if key not in ("format", "version")}
    record = ShardRecord(**{**content, "facts": facts})  # type: ignore[arg-type]
    for kind in facts.kinds:
        _check_digests(record, kind, where)
    return record


def _check_digests(record: ShardRecord, kind: str, where: Path) -> None:
    digests = record.blocks[kind]
    if not isinstance(digests, list) or not all(
        isinstance(item, str) and HEX_DIGEST.match(item) for item in digests
    ):
        raise FormatError(f"blocks.{kind} is not a list of digests", where=where)
    num_bytes = file_bytes(record.facts, record.entry(""), kind)
    expected = -(-num_bytes // record.facts.block_bytes)
    if len(digests) != expected:
        raise FormatError(
            f"wrong number of blocks.{kind}", where=where, expected=expected, actual=len(digests)
        )
