"""Building stores, against the bare tokenizer and against datatrove's pipeline.

Real text found on any machine: the sources of the standard library and of installed
packages, in eight files. Every figure is taken in a process of its own, held to the cores
it may use; what is compared runs in turns, and a ratio is the median of those of the turns,
whose parts follow each other within seconds. Worker processes take a second to start (its
row is the build of a few documents), which a small corpus does not earn back: two workers
are compared with one on 400 MB and on 2 GB. The peer runs in this environment, or in the one whose
interpreter TOKENREEL_PEERS_PYTHON names; where there is none its row is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from benchmarks.harness import Row, at_least, at_most
from tokenreel.text.tokenizers.train import train_tokenizer

MEGABYTE = 1e6
CORPUS_BYTES = 400 * 10**6
LARGE_BYTES = 2 * 10**9
SMALL_BYTES = 10**5
NUM_FILES = 8
REFERENCE_BYTES = 20 * 10**6
PEER_BYTES = 40 * 10**6
MEMORY_BYTES = 256 * 10**6
TEXT_BYTES = 60 * 10**6
TRAIN_BYTES = 10 * 10**6
ROUNDS = 5
LARGE_ROUNDS = 3
PEERS_PYTHON = "TOKENREEL_PEERS_PYTHON"


def measure() -> list[Row]:
    """Return all figures of the builder."""
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    try:
        _make_tokenizer(folder)
        return [
            *_speed(folder),
            *_reference(folder),
            *_peer(folder),
            *_large(folder),
            *_memory(folder, MEMORY_BYTES),
        ]
    finally:
        shutil.rmtree(folder)


def texts() -> list[str]:
    """Return real text of this machine, file by file."""
    found, size = [], 0
    for root in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]):
        for pattern in ("*.py", "*.rst", "*.md", "*.txt"):
            for path in sorted(Path(root).rglob(pattern)):
                try:
                    text = path.read_text("utf-8")
                except (OSError, UnicodeDecodeError):
                    continue
                if text and "\0" not in text and text[0] != "\ufeff":
                    found.append(text[:1_000_000])
                    size += len(found[-1])
                if size >= TEXT_BYTES:
                    return found
    return found


def write_corpus(path: Path, num_bytes: int) -> Path:
    """Write JSONL of about so many bytes: the texts again and again, numbered."""
    size = 0
    with path.open("w") as file:
        for number, text in enumerate(cycle(texts())):
            line = json.dumps({"text": f"{number}\n{text}"}, ensure_ascii=False)
            size += file.write(line + "\n")
            if size >= num_bytes:
                return path
    return path


def write_files(folder: Path, num_bytes: int) -> Path:
    """Write the same in several files, which a folder holds, and return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number in range(NUM_FILES):
        write_corpus(folder / f"{number}.jsonl", num_bytes // NUM_FILES)
    return folder


def _make_tokenizer(folder: Path) -> None:
    sample = folder / "sample.txt"
    with sample.open("w") as file:
        for text in _until(texts(), TRAIN_BYTES):
            file.write(text + "\n")
    train_tokenizer([sample], out=folder / "tok.json", vocab_size=16_000)


def _until(parts: list[str], size: int) -> Iterator[str]:
    # Every tenth: the files of one package are much alike.
    for part in parts[::10]:
        if size <= 0:
            return
        yield part
        size -= len(part)


def _run(
    script: str, *arguments: object, cores: int = 1, python: str = sys.executable
) -> dict[str, float]:
    """Run a script on so many cores and return what it prints as JSON."""
    one_thread = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    output = subprocess.run(
        [python, "-c", HEAD + script, str(cores), *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **one_thread},
    ).stdout
    return json.loads(output.splitlines()[-1])


HEAD = r"""
import json, os, re, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(sys.argv[1]):])
def memory_mb(field):
    return int(re.search(field + r":\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
"""
BARE = r"""
from tokenreel.text.tokenizers import load_tokenizer
import orjson
from pathlib import Path
path = Path(sys.argv[2])
texts = []
for part in sorted(path.iterdir()) if path.is_dir() else [path]:
    with part.open("rb") as file:
        texts += [orjson.loads(line)["text"] for line in file]
size = sum(len(text.encode()) for text in texts)
tokenizer = load_tokenizer(sys.argv[3], engine=sys.argv[4])
batches, held = [[]], 0
for text in texts:
    batches[-1].append(text)
    held += len(text)
    if held >= 1 << 21:
        batches.append([])
        held = 0
def best(parts):
    took = []
    for _ in range(int(sys.argv[5])):
        begin = time.perf_counter()
        for part in parts:
            tokenizer.encode_batch(part)
        took.append(time.perf_counter() - begin)
    return min(took)
# One call for everything pays for fresh memory; batches show what the engine can do.
print(json.dumps({"call": best([texts]), "seconds": best(batches), "size": size}))
"""
BUILD = r"""
import shutil
from tokenreel.builder.build import build
from tokenreel.text.tokenizers import load_tokenizer
if __name__ == "__main__":
    shutil.rmtree(sys.argv[5], ignore_errors=True)
    tokenizer = load_tokenizer(sys.argv[3], engine=sys.argv[4])
    tokenizer.encode_batch(["warm"])
    before = memory_mb("VmRSS")
    begin = time.perf_counter()
    built = build([sys.argv[2]], out=sys.argv[5], tokenizer=tokenizer, workers=int(sys.argv[1]))
    took = time.perf_counter() - begin
    size = built.report["text_bytes"]
    print(json.dumps({"seconds": took, "size": size, "memory": memory_mb("VmHWM") - before}))
"""
PEER = r"""
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
folder, name = os.path.split(sys.argv[2])
begin = time.perf_counter()
LocalPipelineExecutor(
    pipeline=[
        JsonlReader(folder, glob_pattern=name),
        DocumentTokenizer(
            sys.argv[4], tokenizer_name_or_path=sys.argv[3], eos_token=None, shuffle_documents=False
        ),
    ],
    tasks=1,
    logging_dir=sys.argv[4] + "/logs",
).run()
print(json.dumps({"seconds": time.perf_counter() - begin}))
"""


Speeds = dict[str, list[float]]  # MB/s of each turn


def _add(speeds: Speeds, name: str, run: dict[str, float], seconds: str = "seconds") -> None:
    speeds.setdefault(name, []).append(run["size"] / MEGABYTE / run[seconds])


def _compared(name: str, speeds: Speeds, which: str, *, to: str, target: float | None) -> Row:
    """Return a row with the median of the ratios of all turns."""
    ratio = statistics.median(
        mine / other for mine, other in zip(speeds[which], speeds[to], strict=True)
    )
    value = statistics.median(speeds[which])
    if target is None:
        return Row(name=name, value=value, unit="MB/s", ratio=ratio)
    return at_least(name, value, "MB/s", baseline=value / ratio, target=target)


def _alone(name: str, speeds: Speeds, which: str) -> Row:
    return Row(name=name, value=statistics.median(speeds[which]), unit="MB/s")


def _speed(folder: Path) -> list[Row]:
    corpus, tokenizer = write_files(folder / "corpus", CORPUS_BYTES), folder / "tok.json"
    few = write_corpus(folder / "few.jsonl", SMALL_BYTES)
    speeds: Speeds = {}
    starts = []
    for _ in range(ROUNDS):
        start = _run(BUILD, few, tokenizer, "auto", folder / "store", cores=2)
        starts.append(start["seconds"])
        bare = _run(BARE, corpus, tokenizer, "auto", 2)
        _add(speeds, "bare", bare)
        _add(speeds, "call", bare, "call")
        _add(speeds, "one", _run(BUILD, corpus, tokenizer, "auto", folder / "store"))
        _add(speeds, "two", _run(BUILD, corpus, tokenizer, "auto", folder / "store", cores=2))
    one = "build: JSONL to store, one core"
    return [
        _alone("build: fast engine alone, one call for all", speeds, "call"),
        _alone("build: fast engine alone, 2 MB a call", speeds, "bare"),
        _compared(f"{one}, to one call", speeds, "one", to="call", target=0.5),
        _compared(f"{one}, to 2 MB a call", speeds, "one", to="bare", target=0.5),
        Row(name="build: two workers, until they have started", value=min(starts), unit="s"),
        _compared("build: two workers to one, 400 MB", speeds, "two", to="one", target=None),
    ]


def _large(folder: Path) -> list[Row]:
    """Two workers and one over a corpus that takes them some seconds; and what they hold."""
    corpus = write_files(folder / "corpus", LARGE_BYTES)
    speeds: Speeds = {}
    memory: dict[int, float] = {}
    for _ in range(LARGE_ROUNDS):
        for cores in (1, 2):
            run = _run(BUILD, corpus, folder / "tok.json", "auto", folder / "store", cores=cores)
            _add(speeds, str(cores), run)
            memory[cores] = max(memory.get(cores, 0.0), run["memory"])
    return [
        _compared("build: two workers to one, 2 GB", speeds, "2", to="1", target=1.7),
        *(_memory_row(LARGE_BYTES, cores, memory[cores]) for cores in (1, 2)),
    ]


def _reference(folder: Path) -> list[Row]:
    corpus, tokenizer = write_corpus(folder / "small.jsonl", REFERENCE_BYTES), folder / "tok.json"
    speeds: Speeds = {}
    for _ in range(ROUNDS):
        _add(speeds, "bare", _run(BARE, corpus, tokenizer, "reference", 1))
        _add(speeds, "build", _run(BUILD, corpus, tokenizer, "reference", folder / "store"))
    name = "build: by the reference, to it alone"
    return [_compared(name, speeds, "build", to="bare", target=0.9)]


def _peer(folder: Path) -> list[Row]:
    python = os.environ.get(PEERS_PYTHON, sys.executable)
    has_peer = subprocess.run([python, "-c", "import datatrove"], capture_output=True, check=False)
    if has_peer.returncode:
        print(f"no datatrove here: its row is left out ({PEERS_PYTHON} may name another python)")
        return []
    corpus, tokenizer = write_corpus(folder / "peer.jsonl", PEER_BYTES), folder / "tok.json"
    ours = _run(BUILD, corpus, tokenizer, "auto", folder / "store")
    peer = _run(PEER, corpus, tokenizer, folder / "peer", python=python)
    speeds = [ours["size"] / MEGABYTE / figures["seconds"] for figures in (ours, peer)]
    return [
        Row(name="build: datatrove's pipeline, one core", value=speeds[1], unit="MB/s"),
        at_least(
            "build: to datatrove's pipeline", speeds[0], "MB/s", baseline=speeds[1], target=20
        ),
    ]


def _memory(folder: Path, num_bytes: int) -> list[Row]:
    """Peak above what the process held with the tokenizer loaded, for one worker and for two."""
    corpus = write_files(folder / "corpus", num_bytes)
    return [
        _memory_row(
            num_bytes,
            cores,
            _run(BUILD, corpus, folder / "tok.json", "auto", folder / "store", cores=cores)[
                "memory"
            ],
        )
        for cores in (1, 2)
    ]


def _memory_row(num_bytes: int, cores: int, megabytes: float) -> Row:
    name = f"build: parent's memory, {num_bytes / 1e9:g} GB, {cores} workers"
    return at_most(name, megabytes, "MB", target=300)
