"""Building stores of distinct text, against the bare tokenizer and datatrove's pipeline.

The text is that of `corpus.distinct_texts`: each file of this machine once, so that new words keep
coming. The first 10 MB, where most words are new, and the rest are told apart. Every figure is
taken in a process of its own; what is compared runs in turns, and a ratio is the median of those
of the turns, whose parts follow each other within seconds. Two workers are compared with one by
the whole command, its start included, on the same two cores. The peer runs in this environment,
or in the one whose interpreter TOKENREEL_PEERS_PYTHON names; where there is none its row is left
out. TOKENREEL_BENCH_ROUNDS sets the number of turns.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.corpus import FIRST_BYTES, distinct_texts, train_bpe, write_jsonl
from benchmarks.harness import ONE_CORE, Row, at_least, at_most

MEGABYTE = 1e6
SMALL_BYTES = 80 * 10**6
LARGE_BYTES = 400 * 10**6
REFERENCE_BYTES = 20 * 10**6
PEER_BYTES = 40 * 10**6
ROUNDS = int(os.environ.get("TOKENREEL_BENCH_ROUNDS", "5"))
START_SECONDS = 0.4
MEMORY_MB = 300
PEERS_PYTHON = "TOKENREEL_PEERS_PYTHON"
INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}  # as a user has it: modules are compiled once


def measure() -> list[Row]:
    """Return all figures of the builder."""
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    try:
        train_bpe(folder)
        small = _write(folder / "small.jsonl", SMALL_BYTES)
        large = _write(folder / "large.jsonl", LARGE_BYTES)
        return [
            *_start(folder, small),
            *_one_process(folder, small),
            *_one_process(folder, large),
            *_two_workers(folder, small, target=1.3),
            *_two_workers(folder, large, target=1.7),
            *_reference(folder),
            *_peer(folder),
        ]
    finally:
        shutil.rmtree(folder)


def _write(path: Path, num_bytes: int) -> Path:
    """Write distinct texts as JSONL; less where there is less."""
    return write_jsonl(path, distinct_texts(num_bytes))


def _size(corpus: Path) -> str:
    return f"{corpus.stat().st_size / MEGABYTE:.0f} MB"


def _run(
    script: str, *arguments: object, cores: int = 1, python: str = sys.executable
) -> dict[str, float]:
    """Run a script on so many cores and return what it prints as JSON."""
    output = subprocess.run(
        [python, "-c", HEAD + script, str(cores), *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | INSTALLED | (ONE_CORE if cores == 1 else {}),
    ).stdout
    return json.loads(output.splitlines()[-1])


HEAD = r"""
import json, os, re, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(sys.argv[1]):])
def memory_mb(field):
    return int(re.search(field + r":\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
class Marks:
    "When so many bytes were done: the first ones, since they began to be read, and at last all."
    def __init__(self, first):
        self.first, self.done, self.times = first, 0, {}
        self.begin = self.reading = time.perf_counter()
    def start(self, task, *, total, unit=""):
        self.done, self.reading = 0, time.perf_counter()
    def advance(self, amount=1):
        self.done += amount
        if self.done >= self.first and "first" not in self.times:
            self.times["first"] = time.perf_counter() - self.reading
            self.times["first_size"] = self.done
    def note(self, text):
        pass
    def result(self):
        seconds = time.perf_counter() - self.begin
        return {"first": seconds, "first_size": self.done, **self.times,
                "seconds": seconds, "size": self.done}
"""
BARE = r"""
from tokenreel.text.tokenizers import load_tokenizer
import orjson
batches, held = [[]], 0
with open(sys.argv[2], "rb") as file:
    for line in file:
        batches[-1].append((orjson.loads(line)["text"], len(line)))
        held += len(line)
        if held >= 1 << 21:
            batches.append([])
            held = 0
tokenizer = load_tokenizer(sys.argv[3], engine=sys.argv[4])
tokenizer.encode_batch(["warm"])
marks = Marks(int(sys.argv[5]))
for batch in batches:
    tokenizer.encode_batch([text for text, _ in batch])
    marks.advance(sum(size for _, size in batch))
print(json.dumps(marks.result()))
"""
BUILD = r"""
import shutil
from tokenreel.builder.build import build
from tokenreel.text.tokenizers import load_tokenizer
if __name__ == "__main__":
    shutil.rmtree(sys.argv[6], ignore_errors=True)
    tokenizer = load_tokenizer(sys.argv[3], engine=sys.argv[4])
    tokenizer.encode_batch(["warm"])
    before = memory_mb("VmRSS")
    marks = Marks(int(sys.argv[5]))
    build([sys.argv[2]], out=sys.argv[6], tokenizer=tokenizer, progress=marks)
    print(json.dumps({**marks.result(), "memory": memory_mb("VmHWM") - before}))
"""
COMMAND = r"""
import shutil, subprocess
shutil.rmtree(sys.argv[4], ignore_errors=True)
words = ["build", sys.argv[2], "--tokenizer", sys.argv[3], "--out", sys.argv[4], "--quiet"]
begin = time.perf_counter()
subprocess.run([sys.executable, "-m", "tokenreel", *words, "--workers", sys.argv[5]], check=True,
               stdout=subprocess.DEVNULL)
print(json.dumps({"seconds": time.perf_counter() - begin}))
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


Figures = dict[str, list[float]]  # one of each turn


def _speeds(run: dict[str, float]) -> dict[str, float]:
    """Return MB/s of the first part, of the rest, and of all."""
    rest = run["seconds"] - run["first"]
    return {
        "first": run["first_size"] / MEGABYTE / run["first"],
        "rest": (run["size"] - run["first_size"]) / MEGABYTE / rest if rest > 0 else 0.0,
        "all": run["size"] / MEGABYTE / run["seconds"],
    }


def _add(figures: Figures, name: str, run: dict[str, float]) -> None:
    for part, speed in _speeds(run).items():
        figures.setdefault(f"{name} {part}", []).append(speed)


def _compared(name: str, figures: Figures, which: str, *, to: str, target: float | None) -> Row:
    """Return a row with the median of the ratios of all turns."""
    pairs = zip(figures[which], figures[to], strict=True)
    ratio = statistics.median(mine / other for mine, other in pairs)
    value = statistics.median(figures[which])
    if target is None:
        return Row(name=name, value=value, unit="MB/s", ratio=ratio)
    return at_least(name, value, "MB/s", baseline=value / ratio, target=target)


def _start(folder: Path, corpus: Path) -> list[Row]:
    """From the start of the command to its first batch: encoded, and written to its chunk."""
    _first_batch(folder, corpus)  # whoever comes first compiles the modules
    seconds = statistics.median(_first_batch(folder, corpus) for _ in range(2 * ROUNDS + 1))
    name = "command: start to first batch encoded"
    return [at_most(name, seconds, "s", target=START_SECONDS)]


def _first_batch(folder: Path, corpus: Path) -> float:
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    words = ["build", corpus, "--tokenizer", folder / "tokenizer.json", "--out", store, "--quiet"]
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "tokenreel", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | INSTALLED,
    ) as command:
        while not any(map(_has_bytes, store.glob(".build/*/*"))):
            if command.poll() is not None:
                raise RuntimeError("the command ended before its first batch was seen")
            time.sleep(0.001)
        seconds = time.perf_counter() - begin
        command.terminate()
    return seconds


def _has_bytes(path: Path) -> bool:
    """Tell whether a chunk has been written to; one may be renamed while it is looked at."""
    try:
        return path.suffix in (".tmp", ".chunk") and path.stat().st_size > 0
    except FileNotFoundError:
        return True


def _one_process(folder: Path, corpus: Path) -> list[Row]:
    """One process on one core, against the engine alone on the same text in memory."""
    tokenizer, store = folder / "tokenizer.json", folder / "store"
    figures: Figures = {}
    memory = []
    for _ in range(ROUNDS):
        _add(figures, "bare", _run(BARE, corpus, tokenizer, "auto", FIRST_BYTES))
        built = _run(BUILD, corpus, tokenizer, "auto", FIRST_BYTES, store)
        _add(figures, "build", built)
        memory.append(built["memory"])
    size = _size(corpus)
    parts = {"first": f"{size}, the first 10 MB", "rest": f"{size}, the rest", "all": size}
    rows = []
    for part, words in parts.items():
        alone = statistics.median(figures[f"bare {part}"])
        rows.append(Row(name=f"engine alone, {words}", value=alone, unit="MB/s"))
        target = 0.8 if part == "all" else None
        name = f"build, one core, {words}"
        rows.append(_compared(name, figures, f"build {part}", to=f"bare {part}", target=target))
    name = f"build: memory beside the tokenizer, {size}"
    return [*rows, at_most(name, max(memory), "MB", target=MEMORY_MB)]


def _two_workers(folder: Path, corpus: Path, *, target: float) -> list[Row]:
    """The whole command on two cores, with two workers and with one."""
    megabytes = corpus.stat().st_size / MEGABYTE
    figures: Figures = {}
    for _ in range(ROUNDS):
        for workers in ("1", "2"):
            arguments = (corpus, folder / "tokenizer.json", folder / "store", workers)
            run = _run(COMMAND, *arguments, cores=2)
            figures.setdefault(workers, []).append(megabytes / run["seconds"])
    size = _size(corpus)
    one = statistics.median(figures["1"])
    return [
        Row(name=f"command: one worker, {size}", value=one, unit="MB/s"),
        _compared(f"command: two workers to one, {size}", figures, "2", to="1", target=target),
    ]


def _reference(folder: Path) -> list[Row]:
    corpus, tokenizer = (
        _write(folder / "reference.jsonl", REFERENCE_BYTES),
        folder / "tokenizer.json",
    )
    figures: Figures = {}
    for _ in range(ROUNDS):
        _add(figures, "bare", _run(BARE, corpus, tokenizer, "reference", FIRST_BYTES))
        store = folder / "store"
        _add(figures, "build", _run(BUILD, corpus, tokenizer, "reference", FIRST_BYTES, store))
    name = "build: by the reference, to it alone"
    return [_compared(name, figures, "build all", to="bare all", target=0.9)]


def _peer(folder: Path) -> list[Row]:
    python = os.environ.get(PEERS_PYTHON, sys.executable)
    has_peer = subprocess.run([python, "-c", "import datatrove"], capture_output=True, check=False)
    if has_peer.returncode:
        print(f"no datatrove here: its row is left out ({PEERS_PYTHON} may name another python)")
        return []
    corpus, tokenizer = _write(folder / "peer.jsonl", PEER_BYTES), folder / "tokenizer.json"
    ours = _run(BUILD, corpus, tokenizer, "auto", FIRST_BYTES, folder / "store")
    peer = _run(PEER, corpus, tokenizer, folder / "peer", python=python)
    speeds = [ours["size"] / MEGABYTE / figures["seconds"] for figures in (ours, peer)]
    return [
        Row(name="build: datatrove's pipeline, one core", value=speeds[1], unit="MB/s"),
        at_least(
            "build: to datatrove's pipeline", speeds[0], "MB/s", baseline=speeds[1], target=20
        ),
    ]
