"""A fresh process to its first batch: the same for a million rows and for 10^12, at any step.

Document windows are surveyed at the first start; later ones find what was found and read
only the index of the shards they show, however many documents there are.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, at_least, at_most
from tokenreel.rows.plan_cache import FOLDER
from tokenreel.store.block_writer import BLOCK_BYTES
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.manifest import Facts, Manifest
from tokenreel.store.shard_record import ShardRecord
from tokenreel.store.writer import StoreWriter

SEQ_LEN = 16  # 10^12 rows must fit into the address space
ROUNDS = 5
DOCUMENT_TOKENS = 10
SHARD_DOCUMENTS = 10_000

PROBE = r"""
import json, re, sys, time
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe, Source
def peak_mb(): return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
before = peak_mb()
begin = time.perf_counter()
source = Source(name="a", path=sys.argv[1], rows=sys.argv[4])
feed = Feed(Recipe(seq_len=int(sys.argv[3]), global_batch_size=64, seed=1, sources=[source]))
feed.batch(int(sys.argv[2]))
print(json.dumps({"seconds": time.perf_counter() - begin, "memory": peak_mb() - before,
                  "rows": feed.plans[0].num_rows}))
"""


def measure() -> list[Row]:
    """Return the time and memory of the first batch."""
    with tempfile.TemporaryDirectory(prefix="tokenreel-bench-") as name:
        small, huge = Path(name) / "small", Path(name) / "huge"
        _write_small(small)
        _write_huge(huge)
        rows: list[Row] = []
        for path in (small, huge):
            for step in (0, 10**9):
                rows += _first_batch(path, step)
        return rows + _document_windows(Path(name))


def _write_small(path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 1000, SEQ_LEN * 10**6, dtype=np.uint16)
    with StoreWriter(path, vocab_size=1000) as writer:
        writer.add_batch(DocumentBatch(ids=ids, offsets=np.arange(0, len(ids) + 1, 500)))


def _write_huge(root: Path) -> None:
    """Make a store of 1.6·10^13 tokens of sparse files: 10^12 rows."""
    tokens, shards = SEQ_LEN * 10**10, 100
    facts = Facts(dtype="uint16", vocab_size=1000, block_bytes=BLOCK_BYTES, shard_bytes=2**50)
    entries = []
    (root / "train").mkdir(parents=True)
    docs = np.array([0, tokens], "<u8")
    digest = hashlib.sha256(docs.tobytes()).hexdigest()
    for number in range(shards):
        stem = root / "train" / f"shard_{number:05d}"
        with stem.with_suffix(".bin").open("wb") as file:
            file.truncate(tokens * 2)
        stem.with_suffix(".docs").write_bytes(docs.tobytes())
        stem.with_suffix(".json").write_bytes(b"{}\n")
        record = ShardRecord(
            facts=facts,
            split="train",
            number=number,
            tokens=tokens,
            documents=1,
            turns=0,
            strings_bytes=0,
            continues=False,
            blocks={"bin": [], "docs": [digest]},
        )
        entries.append(record.entry(f"train/{stem.name}"))
    manifest = Manifest(facts=facts, splits={"train": tuple(entries)})
    (root / "manifest.json").write_bytes(manifest.to_bytes())


def _first_batch(path: Path, step: int) -> list[Row]:
    best = {"seconds": float("inf"), "memory": float("inf"), "rows": 0}
    for _ in range(ROUNDS):
        found = _probe(path, step)
        best = {
            "seconds": min(best["seconds"], found["seconds"]),
            "memory": min(best["memory"], found["memory"]),
            "rows": found["rows"],
        }
    name = f"first batch, {best['rows']:.2g} rows, step {step:.0e}"
    return [
        at_most(name, best["seconds"] * 1000, "ms", target=100),
        at_most(f"{name}: memory", best["memory"], "MB", target=100),
    ]


def _document_windows(folder: Path) -> list[Row]:
    """Start on ten million documents without a plan, with one, and where none is needed."""
    path = folder / "documents"
    _write_documents(path, 10**7)
    best = dict.fromkeys(("first", "second", "plain"), float("inf"))
    for _ in range(ROUNDS):
        shutil.rmtree(path / FOLDER, ignore_errors=True)
        for name in best:
            rows = "windows" if name == "plain" else "document_windows"
            best[name] = min(best[name], _probe(path, 0, rows=rows)["seconds"])
    seconds, name = best["second"], "first batch of document windows, 10^7 documents"
    compared = [
        at_least(
            f"{name}: starts/s, {other} = 1",
            1 / seconds,
            "1/s",
            baseline=1 / best[start],
            target=target,
        )
        for start, other, target in (("first", "first start", 3), ("plain", "plain windows", 0.5))
    ]
    return [
        Row(name=f"{name}, first start", value=best["first"] * 1000, unit="ms"),
        at_most(f"{name}, second start", seconds * 1000, "ms", target=100),
        *compared,
    ]


def _write_documents(path: Path, num_documents: int) -> None:
    shard_tokens = DOCUMENT_TOKENS * SHARD_DOCUMENTS
    ids = np.random.default_rng(0).integers(0, 1000, shard_tokens, dtype=np.uint16)
    documents = DocumentBatch(ids=ids, offsets=np.arange(0, shard_tokens + 1, DOCUMENT_TOKENS))
    with StoreWriter(path, vocab_size=1000, shard_bytes=2 * shard_tokens) as writer:
        for _ in range(num_documents // SHARD_DOCUMENTS):
            writer.add_batch(documents)


def _probe(path: Path, step: int, *, rows: str = "windows") -> dict[str, float]:
    """Return what a fresh process measures until it has its first batch."""
    output = subprocess.run(
        [sys.executable, "-c", PROBE, str(path), str(step), str(SEQ_LEN), rows],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    found: dict[str, float] = json.loads(output)
    return found
