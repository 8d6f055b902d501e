"""FORMAT.md once more, with hashlib, json and numpy alone.

Nothing of tokenreel is used here: `read_documents` and `check_store` are a second
reader, `seal` gives a damaged store valid checksums again, so that a test reaches
the checks behind them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WIDTHS = {"uint16": "<u2", "uint32": "<u4", "uint8": "u1", "float32": "<f4"}


def canonical(value: object) -> bytes:
    """Return the canonical JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def sha256(data: bytes) -> str:
    """Return the digest in hex."""
    return hashlib.sha256(data).hexdigest()


def read_manifest(root: Path) -> dict[str, Any]:
    """Return manifest.json as it is."""
    return json.loads((root / "manifest.json").read_bytes())


def kinds(facts: dict[str, Any]) -> list[str]:
    """Return the files of a shard, without its record."""
    names = ["bin", "docs"]
    names += ["turns"] if facts["turns"] else []
    names += ["weights"] if facts["weights"] else []
    names += ["origins", "strings"] if facts["provenance"] else []
    names += ["records", "objects"] if facts.get("records") else []
    return names


def block_digests(data: bytes, block_bytes: int) -> list[str]:
    """Return the digest of each block."""
    return [sha256(data[i : i + block_bytes]) for i in range(0, len(data), block_bytes)]


def fingerprint(manifest: dict[str, Any]) -> str:
    """Return the fingerprint that a manifest must have."""
    splits = {
        name: [{key: value for key, value in entry.items() if key != "path"} for entry in shards]
        for name, shards in manifest["splits"].items()
    }
    return sha256(canonical({"facts": manifest["facts"], "splits": splits}))


def manifest_digest(manifest: dict[str, Any]) -> str:
    """Return the checksum that a manifest must have of itself."""
    return sha256(canonical({key: manifest[key] for key in manifest if key != "sha256"}))


def write_manifest(root: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with the fingerprint it must have."""
    manifest["fingerprint"] = fingerprint(manifest)
    manifest["sha256"] = manifest_digest(manifest)
    (root / "manifest.json").write_bytes(canonical(manifest))


def edit_manifest(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and give it a valid fingerprint."""
    manifest = read_manifest(root)
    change(manifest)
    write_manifest(root, manifest)


def seal(root: Path, *, count_tokens: bool = True) -> None:
    """Give a store that was changed valid counts and checksums."""
    manifest = read_manifest(root)
    facts = manifest["facts"]
    for shards in manifest["splits"].values():
        for entry in shards:
            record_path = root / f"{entry['path']}.json"
            record = json.loads(record_path.read_bytes())
            files = {kind: (root / f"{entry['path']}.{kind}").read_bytes() for kind in kinds(facts)}
            if count_tokens:
                entry["tokens"] = len(files["bin"]) // np.dtype(WIDTHS[facts["dtype"]]).itemsize
            entry["documents"] = len(files["docs"]) // 8 - 1
            entry["turns"] = len(files.get("turns", b"")) // 24
            entry["strings_bytes"] = len(files.get("strings", b""))
            if facts.get("records"):
                entry["records_bytes"] = len(files["objects"])
            record |= {"facts": facts, "continues": entry["continues"]}
            counted = ("tokens", "documents", "turns", "strings_bytes", "records_bytes")
            record |= {key: entry[key] for key in counted if key in entry}
            record["blocks"] = {
                kind: block_digests(data, facts["block_bytes"]) for kind, data in files.items()
            }
            record_path.write_bytes(canonical(record))
            entry["docs_sha256"] = sha256("".join(record["blocks"]["docs"]).encode())
            entry["record_sha256"] = sha256(canonical(record))
    write_manifest(root, manifest)


def contents(root: Path) -> dict[str, bytes]:
    """Return every file that the manifest names, as "split/number.kind" → bytes."""
    manifest = read_manifest(root)
    suffixes = [*kinds(manifest["facts"]), "json"]
    return {
        f"{split}/{number}.{suffix}": (root / f"{entry['path']}.{suffix}").read_bytes()
        for split, shards in manifest["splits"].items()
        for number, entry in enumerate(shards)
        for suffix in suffixes
    }


def find_damage(root: Path) -> list[str]:
    """Check every byte of a store; return the files that are not what they should be."""
    manifest = read_manifest(root)
    facts = manifest["facts"]
    vouched = (manifest["fingerprint"], manifest["sha256"])
    right = vouched == (fingerprint(manifest), manifest_digest(manifest))
    wrong = [] if right else ["manifest.json"]
    for shards in manifest["splits"].values():
        for entry in shards:
            record_bytes = (root / f"{entry['path']}.json").read_bytes()
            if sha256(record_bytes) != entry["record_sha256"]:
                wrong.append(f"{entry['path']}.json")
                continue
            blocks = json.loads(record_bytes)["blocks"]
            wrong += [
                f"{entry['path']}.{kind}"
                for kind in kinds(facts)
                if block_digests(
                    (root / f"{entry['path']}.{kind}").read_bytes(), facts["block_bytes"]
                )
                != blocks[kind]
            ]
    return wrong


def read_documents(root: Path, split: str = "train") -> list[list[int]]:
    """Return the documents of a split."""
    manifest = read_manifest(root)
    documents: list[list[int]] = []
    continued = False
    for entry in manifest["splits"][split]:
        tokens = np.fromfile(root / f"{entry['path']}.bin", WIDTHS[manifest["facts"]["dtype"]])
        offsets = np.fromfile(root / f"{entry['path']}.docs", "<u8").tolist()
        for start, stop in itertools.pairwise(offsets):
            part = tokens[start:stop].tolist()
            if continued:
                documents[-1] += part
            else:
                documents.append(part)
            continued = False
        continued = entry["continues"]
    return documents
