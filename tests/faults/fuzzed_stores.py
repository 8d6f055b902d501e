"""Stores of every layout, their indexes, plans and what unfinished builds leave, to be damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.faults.damaging import damaged_bytes, damaged_json, damaged_json_bytes
from tests.faults.fuzzed import Maker, Strategy, Target, as_mapping, file_target
from tests.store.building import build_full
from tests.store.independent import canonical, seal, sha256, write_manifest

from tokenreel import Feed, Recipe, Source, StoreWriter, convert, open_store, verify
from tokenreel.errors import TokenreelError


def read_whole(path: Path) -> None:
    """Open a store in both ways and read all of it; a feed and a verdict too."""
    for mode in ("mmap", "pread"):
        store = open_store(path, mode=mode)
        _ = store.fingerprint
        for split in store.splits.values():
            split.read(0, split.num_tokens)
            for document in split.documents() if split.num_documents is not None else ():
                _ = document.tokens
        feed_of(path, mode=mode).batch(0)


def feed_of(path: Path, **source: Any) -> Feed:
    made = Source(**{"name": "a", "path": path, **source})
    return Feed(Recipe(seq_len=3, global_batch_size=2, sources=[made]))


def store_target(path: Path, file: str, damage: Callable[[bytes], Strategy]) -> Target:
    def use() -> None:
        verify(path)
        read_whole(path)

    return file_target(path / file, use, damage)


def manifest(folder: Path) -> Target:
    return store_target(build_full(folder / "s"), "manifest.json", damaged_json_bytes)


def sealed_manifest(folder: Path) -> Target:
    """A manifest of any content, spelled canonically and with the checksum it must have."""
    store = build_full(folder / "s")
    whole = json.loads((store / "manifest.json").read_bytes())

    def use(value: Any) -> None:
        try:
            write_manifest(store, value)
        except (KeyError, TypeError, ValueError, AttributeError):
            return  # not even a fingerprint can be made of it
        verify(store)
        read_whole(store)

    return Target(inputs=damaged_json(whole), use=use)


def shard_record(folder: Path) -> Target:
    store = build_full(folder / "s")
    record = next(store.glob("train*/shard_00000.json"))
    return store_target(store, str(record.relative_to(store)), damaged_json_bytes)


def sealed_shard_files(folder: Path) -> Target:
    """Index, turns, weights, origins and strings of any content, with valid checksums."""
    store = build_full(folder / "s")
    shutil.copytree(store, folder / "whole")
    kinds = ("bin", "docs", "turns", "weights", "origins", "strings")
    files = {kind: next(store.glob(f"train*/shard_00000.{kind}")) for kind in kinds}
    inputs = st.one_of(
        *(st.tuples(st.just(file), damaged_bytes(file.read_bytes())) for file in files.values())
    )

    def use(drawn: tuple[Path, bytes]) -> None:
        shutil.copytree(folder / "whole", store, dirs_exist_ok=True)
        drawn[0].write_bytes(drawn[1])
        seal(store)
        verify(store)
        read_whole(store)
        feed_of(store, rows="packed").explain(0)

    return Target(inputs=inputs, use=use)


def unfinished_build(folder: Path) -> Target:
    """The plan and the journal that a build left are damaged; the next one begins there."""
    options: dict[str, Any] = {"vocab_size": 1000, "shard_bytes": 24, "block_bytes": 16}
    with suppress(ZeroDivisionError), StoreWriter(folder / "whole", **options) as writer:
        writer.add(list(range(40)))
        _ = 1 / 0
    left = folder / "left"
    files = [path for path in (folder / "whole").rglob("*.json") if path.is_file()]
    inputs = st.one_of(
        *(st.tuples(st.just(file), damaged_json_bytes(file.read_bytes())) for file in files)
    )

    def use(drawn: tuple[Path, bytes]) -> None:
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(folder / "whole", left)
        (left / drawn[0].relative_to(folder / "whole")).write_bytes(drawn[1])
        with StoreWriter(left, **options) as writer:
            writer.add(list(range(40)))

    return Target(inputs=inputs, use=use)


def plan_header(folder: Path) -> Target:
    """A plan of any content that vouches for itself: it is made again, or it is right."""
    store = build_full(folder / "s")
    expected = feed_of(store, rows="packed").batch(0).input_ids.tolist()
    headers = {path: json.loads(path.read_bytes()) for path in store.rglob("plan.json")}
    path, whole = next(item for item in headers.items() if "row_offsets" in item[1]["files"])

    def use(value: Any) -> None:
        content = {k: v for k, v in as_mapping(value).items() if k != "sha256"}
        with suppress(UnicodeEncodeError):
            path.write_bytes(canonical({**content, "sha256": sha256(canonical(content))}))
        verify(store)
        assert feed_of(store, rows="packed").batch(0).input_ids.tolist() == expected

    return Target(inputs=damaged_json(whole), use=use)


def plan_columns(folder: Path) -> Target:
    """Columns of any content in plans of every kind of rows, whose headers vouch for them."""
    store = build_full(folder / "s")
    rows = ("windows", "episodes", "packed")
    for kind in rows:
        feed_of(store, rows=kind)
    shutil.copytree(store, folder / "whole")
    columns = [
        file
        for file in sorted((store / ".plans").rglob("*"))
        if file.is_file() and file.name != "plan.json" and file.stat().st_size
    ]
    inputs = st.one_of(
        *(st.tuples(st.just(file), damaged_bytes(file.read_bytes())) for file in columns)
    )

    def use(drawn: tuple[Path, bytes]) -> None:
        file, data = drawn
        shutil.rmtree(store)
        shutil.copytree(folder / "whole", store)
        file.write_bytes(data)
        header = json.loads((file.parent / "plan.json").read_bytes())
        header["files"][file.name] = {"bytes": len(data), "sha256": sha256(data)}
        content = {name: value for name, value in header.items() if name != "sha256"}
        sealed = canonical({**content, "sha256": sha256(canonical(content))})
        (file.parent / "plan.json").write_bytes(sealed)
        for kind in rows:
            with suppress(TokenreelError):  # the other plans are whole
                feed = feed_of(store, rows=kind)
                for step in range(3):
                    feed.batch(step)
                    feed.explain(step)
                feed.where("a", 1)

    return Target(inputs=inputs, use=use)


def npy_header(folder: Path) -> Target:
    np.save(folder / "a.npy", np.arange(20, dtype="<u2"))
    return store_target(folder, "a.npy", damaged_bytes)


def megatron_index(folder: Path) -> Target:
    convert(build_full(folder / "s"), folder / "m", to="megatron")
    return store_target(folder / "m", "train.idx", damaged_bytes)


def episodes_index(folder: Path) -> Target:
    convert(build_full(folder / "s"), folder / "e", to="episodes")
    return store_target(folder / "e", "train/episodes.idx", damaged_bytes)


def cache_offsets(folder: Path) -> Target:
    put_cache(folder)
    return store_target(folder, "train_idx.npy", damaged_bytes)


def cache_meta(folder: Path) -> Target:
    put_cache(folder)
    return store_target(folder, "meta.json", damaged_json_bytes)


def put_cache(folder: Path) -> None:
    np.arange(10, dtype="<u2").tofile(folder / "train_tokens.bin")
    np.save(folder / "train_idx.npy", np.array([0, 3, 7], "<i8"))
    meta = {"token_dtype": "uint16-le", "vocab_size": 1000, "train_examples": 3, "train_tokens": 10}
    (folder / "meta.json").write_text(json.dumps({**meta, "totals": {"val_examples": 0}}))


def metadata_yaml(folder: Path) -> Target:
    np.arange(10, dtype="<u2").tofile(folder / "a_0.bin")
    text = "tokenized_info:\n  dtype: uint16\n  vocab_size: 300\n  file_prefix: a\n  tokenizer: t\n"
    (folder / "metadata.yaml").write_text(text)
    return store_target(folder, "metadata.yaml", damaged_bytes)


PARSERS: tuple[Maker, ...] = (
    manifest,
    sealed_manifest,
    shard_record,
    sealed_shard_files,
    unfinished_build,
    plan_header,
    plan_columns,
    npy_header,
    megatron_index,
    episodes_index,
    cache_offsets,
    cache_meta,
    metadata_yaml,
)
