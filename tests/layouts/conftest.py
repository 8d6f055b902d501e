"""Folders of every foreign layout, written by hand: no writer of ours is used here."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DocumentBatch = Sequence[Sequence[int]]


def put_episodes(
    folder: Path,
    documents: DocumentBatch,
    masks: Sequence[Sequence[float]] | None = None,
    **kinds: Any,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    flat = [token for document in documents for token in document]
    (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(flat)}I", *flat))
    records, start = b"", 0
    for document in documents:
        records += struct.pack("<QQ", start, len(document))
        start += len(document)
    (folder / "episodes.idx").write_bytes(records)
    if masks is not None:
        values = [value for mask in masks for value in mask]
        kind = kinds.get("mask", "B")
        cast = [int(v) for v in values] if kind == "B" else values
        (folder / "mask.bin").write_bytes(struct.pack(f"<{len(cast)}{kind}", *cast))
    return folder


def put_megatron(
    prefix: Path,
    documents: Sequence[DocumentBatch],
    *,
    code: int = 8,
    kind: str = "H",
    modes: bytes | None = None,
) -> Path:
    """Write documents, each a list of sequences, from the public description of the format."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    sequences = [sequence for document in documents for sequence in document]
    data, pointers = b"", []
    for sequence in sequences:
        pointers.append(len(data))
        data += struct.pack(f"<{len(sequence)}{kind}", *sequence)
    entries = [0]
    for document in documents:
        entries.append(entries[-1] + len(document))
    index = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", code)
    index += struct.pack("<Q", len(sequences)) + struct.pack("<Q", len(entries))
    index += struct.pack(f"<{len(sequences)}i", *map(len, sequences))
    index += struct.pack(f"<{len(sequences)}q", *pointers)
    index += struct.pack(f"<{len(entries)}q", *entries)
    index += modes or b""
    prefix.with_name(prefix.name + ".bin").write_bytes(data)
    prefix.with_name(prefix.name + ".idx").write_bytes(index)
    return prefix


def put_sft(folder: Path, splits: dict[str, DocumentBatch], meta: dict[str, Any] | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, documents in splits.items():
        flat = [token for document in documents for token in document]
        (folder / f"{name}_tokens.bin").write_bytes(struct.pack(f"<{len(flat)}H", *flat))
        lengths = [len(document) for document in documents]
        starts = np.cumsum([0, *lengths[:-1]]) if lengths else np.empty(0)
        np.save(folder / f"{name}_idx.npy", starts.astype(np.int64))
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def put_pretrain(
    folder: Path, splits: dict[str, DocumentBatch], meta: dict[str, Any] | None = None
) -> Path:
    """Write one shard per list of tokens, and meta.json with the right totals."""
    totals = {f"{name}_tokens": sum(map(len, shards)) for name, shards in splits.items()}
    for name, shards in splits.items():
        (folder / name).mkdir(parents=True)
        for number, tokens in enumerate(shards):
            path = folder / name / f"shard_{number:05d}.bin"
            path.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    content = {"token_dtype": "uint16-le", "vocab_size": 1000, **totals, **(meta or {})}
    (folder / "meta.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="session")
def episodes() -> Callable[..., Path]:
    return put_episodes


@pytest.fixture(scope="session")
def megatron() -> Callable[..., Path]:
    return put_megatron


@pytest.fixture(scope="session")
def sft() -> Callable[..., Path]:
    return put_sft


@pytest.fixture(scope="session")
def pretrain() -> Callable[..., Path]:
    return put_pretrain


@pytest.fixture(scope="session")
def texts() -> Callable[..., list[list[int]]]:
    """Return the documents of a split as plain lists."""

    def read(store: Any, split: str = "train") -> list[list[int]]:
        return [document.tokens.tolist() for document in store[split].documents()]

    return read


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache folder out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("xdg")))
        yield
