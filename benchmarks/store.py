"""Writing, verifying and opening stores, against what the machine can do at best."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, at_least, at_most, best_seconds
from tokenreel.inspect.verify import verify_store
from tokenreel.store.block_writer import BLOCK_BYTES, root_digest
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.manifest import Facts, Manifest, ShardEntry
from tokenreel.store.writer import StoreWriter

NUM_TOKENS = 256 * 1024 * 1024  # 512 MB as uint16
SHARD_BYTES = 128 * 1024 * 1024
MEGABYTE = 1e6

HUGE_SHARDS = 10_000
HUGE_TOKENS_PER_SHARD = 250_000_000
HUGE_DOCUMENTS_PER_SHARD = 250


def measure() -> list[Row]:
    """Return all figures of the store room."""
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    try:
        return [*_writing(folder), *_verifying(folder), *_opening(folder)]
    finally:
        shutil.rmtree(folder)


def _documents() -> DocumentBatch:
    """Documents of lognormal length, median 500, as a tokenizer hands them over (uint32)."""
    generator = np.random.default_rng(7)
    ids = generator.integers(0, 50_000, NUM_TOKENS, dtype=np.uint32)
    lengths = np.exp(generator.normal(np.log(500), 1.0, NUM_TOKENS // 400)).astype(np.int64) + 1
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    offsets = offsets[: np.searchsorted(offsets, NUM_TOKENS)]
    return DocumentBatch(ids=ids, offsets=np.append(offsets, NUM_TOKENS))


def _batches(documents: DocumentBatch) -> list[DocumentBatch]:
    size = 2_000
    return [
        documents.part(start, min(start + size, len(documents)))
        for start in range(0, len(documents), size)
    ]


def _writing(folder: Path) -> list[Row]:
    documents = _documents()
    batches = _batches(documents)
    raw = memoryview(documents.ids.astype(np.uint16).data).cast("B")

    def plain() -> None:
        for number, start in enumerate(range(0, len(raw), SHARD_BYTES)):
            with (folder / f"plain_{number}").open("wb", buffering=0) as file:
                part = raw[start : start + SHARD_BYTES]
                for block in range(0, len(part), BLOCK_BYTES):
                    file.write(part[block : block + BLOCK_BYTES])
                os.fsync(file.fileno())

    def store() -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        with StoreWriter(folder / "store", vocab_size=50_000, shard_bytes=SHARD_BYTES) as writer:
            for batch in batches:
                writer.add_batch(batch)

    seconds = best_seconds({"plain": plain, "store": store}, rounds=5)
    for path in folder.glob("plain_*"):
        path.unlink()
    speed = {name: len(raw) / MEGABYTE / took for name, took in seconds.items()}
    return [
        Row(name="write: plain file, fsync per shard", value=speed["plain"], unit="MB/s"),
        at_least(
            "write: store, checksums and index included",
            speed["store"],
            "MB/s",
            baseline=speed["plain"],
            target=0.6,
        ),
    ]


def _verifying(folder: Path) -> list[Row]:
    """Verify the store just written; the baseline hashes the same token files block by block."""
    shards = sorted((folder / "store" / "train").glob("*.bin"))
    num_bytes = sum(path.stat().st_size for path in shards)
    block = bytearray(BLOCK_BYTES)

    def checksum() -> None:
        for path in shards:
            with path.open("rb", buffering=0) as file:
                while got := file.readinto(block):
                    hashlib.sha256(memoryview(block)[:got]).digest()

    seconds = best_seconds(
        {
            "checksum": checksum,
            "one": lambda: verify_store(folder / "store", threads=1),
            "two": lambda: verify_store(folder / "store", threads=2),
        },
        rounds=5,
    )
    speed = {name: num_bytes / MEGABYTE / took for name, took in seconds.items()}
    return [
        Row(name="verify: SHA-256 alone over the files", value=speed["checksum"], unit="MB/s"),
        at_least(
            "verify: one thread", speed["one"], "MB/s", baseline=speed["checksum"], target=0.7
        ),
        at_least(
            "verify: two threads to one", speed["two"], "MB/s", baseline=speed["one"], target=1.8
        ),
    ]


def _opening(folder: Path) -> list[Row]:
    huge = folder / "huge"
    _make_huge_store(huge)
    best: dict[str, float] = {}
    for _ in range(5):
        output = subprocess.run(
            [sys.executable, "-c", PROBE, str(huge)], check=True, capture_output=True, text=True
        ).stdout
        for name, value in json.loads(output).items():
            best[name] = min(best.get(name, float("inf")), value)
    tokens = HUGE_SHARDS * HUGE_TOKENS_PER_SHARD / 1e12
    return [
        at_most(f"open: {HUGE_SHARDS:,} shards, {tokens:g} T tokens", best["open"], "s", target=1),
        at_most("open: memory above the interpreter", best["memory"], "MB", target=100),
        at_most("open: one window in the middle", best["window"] * 1000, "ms", target=10),
        at_most("open: one document in the middle", best["document"] * 1000, "ms", target=10),
    ]


PROBE = r"""
import json, re, sys, time
import tokenreel
def peak_mb(): return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
before = peak_mb()
begin = time.perf_counter()
store = tokenreel.open_store(sys.argv[1])
opened = time.perf_counter()
middle = store["train"].num_tokens // 2
assert len(store["train"].read(middle, middle + 2049)) == 2049
read = time.perf_counter()
assert len(store["train"].document(store["train"].num_documents // 2 + 7)) > 0
found = time.perf_counter()
print(json.dumps({"open": opened - begin, "window": read - opened, "document": found - read,
                  "memory": peak_mb() - before}))
"""


def _make_huge_store(root: Path) -> None:
    """Make a store of sparse token files; every file has its right size and checksum of index."""
    facts = Facts(dtype="uint32", vocab_size=128_000, block_bytes=BLOCK_BYTES, shard_bytes=2**30)
    offsets = np.linspace(0, HUGE_TOKENS_PER_SHARD, HUGE_DOCUMENTS_PER_SHARD + 1).astype("<u8")
    docs = offsets.tobytes()
    docs_root = root_digest([hashlib.sha256(docs).hexdigest()])
    entries = []
    (root / "train").mkdir(parents=True)
    for number in range(HUGE_SHARDS):
        stem = f"train/shard_{number:05d}"
        with (root / f"{stem}.bin").open("wb") as file:
            file.truncate(HUGE_TOKENS_PER_SHARD * 4)
        (root / f"{stem}.docs").write_bytes(docs)
        (root / f"{stem}.json").write_bytes(b"{}\n")
        entries.append(
            ShardEntry(
                path=stem,
                tokens=HUGE_TOKENS_PER_SHARD,
                documents=HUGE_DOCUMENTS_PER_SHARD,
                turns=0,
                strings_bytes=0,
                continues=False,
                docs_sha256=docs_root,
                record_sha256=hashlib.sha256(b"{}\n").hexdigest(),
            )
        )
    manifest = Manifest(facts=facts, splits={"train": tuple(entries)})
    (root / "manifest.json").write_bytes(manifest.to_bytes())


if __name__ == "__main__":
    begin = time.perf_counter()
    for row in measure():
        print(row)
    print(f"{time.perf_counter() - begin:.0f} s")
