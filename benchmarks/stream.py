"""The stream around its tokenizer: overhead, engines, waiting, utilisation, resuming."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import documents, train_bpe, write_jsonl
from benchmarks.harness import Row, at_least, at_most, best_seconds, rows_of_process
from tokenreel.stream import StreamPipeline, read_config
from tokenreel.stream.arrivals import Arrivals, Bookmark, Deal, grouped
from tokenreel.stream.encoded_documents import Encoder
from tokenreel.stream.stream_batches import Batches, OpenedStream
from tokenreel.stream.stream_state import stats_of
from tokenreel.text.tokenizers import Encoded, Tokenizer, load_tokenizer

SEQ_LEN = 2048


def measure() -> list[Row]:
    """Measure in a process whose tokenizers are held to one thread."""
    return rows_of_process("benchmarks.stream")


def _measure_here() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tokenreel-bench-") as name:
        folder = Path(name)
        tokenizer = train_bpe(folder)
        return [
            *_against_tokenizer(folder, tokenizer),
            *_stages(folder, tokenizer),
            *_waiting(folder, tokenizer),
            *_resuming(folder, tokenizer),
            *_utilisation(folder),
        ]


def _opened(
    path: Path, *, tokenizer_object: Tokenizer | None = None, **settings: Any
) -> OpenedStream:
    config = {
        "data": {"backend": "local_text", "local_files": str(path), "repeat": False, **settings},
        "train": {"seq_len": SEQ_LEN, "batch_size": 16},
    }
    return OpenedStream(read_config(config), tokenizer=tokenizer_object)


def _tokenizer(path: Path, engine: str) -> dict[str, Any]:
    return {"kind": "hf", "hf_name_or_path": str(path), "engine": engine, "add_eos": True}


def _drain(stream: OpenedStream) -> Callable[[], None]:
    stream.identity  # noqa: B018  hashing the files is the price of opening, not of a batch

    def run() -> None:
        for _ in Batches(stream):
            pass

    return run


class Timed:
    """The reference tokenizer, and the time spent in it."""

    engine = "reference"

    def __init__(self, path: Path) -> None:
        self._tokenizer = load_tokenizer(path, engine="reference")
        self.vocab_size = self._tokenizer.vocab_size
        self.control_ids = self._tokenizer.control_ids
        self.fingerprint = self._tokenizer.fingerprint
        self.decode = self._tokenizer.decode
        self.seconds = 0.0

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode, and note how long it took."""
        begin = time.process_time()
        encoded = self._tokenizer.encode_batch(texts)
        self.seconds += time.process_time() - begin
        return encoded


def _around_reference(source: Path, path: Path, mode: str) -> tuple[float, float]:
    """Return the seconds inside the reference tokenizer, and around it, of the best of five runs.

    Both are of the same run: nothing else on the machine can come between them.
    """
    settings = {"packing_mode": mode, "tokenizer": _tokenizer(path, "reference")}
    runs = []
    for _ in range(5):
        timed = Timed(path)
        run = _drain(_opened(source, tokenizer_object=timed, **settings))
        begin = time.process_time()
        run()
        runs.append((time.process_time() - begin - timed.seconds, timed.seconds))
    around, inside = min(runs)
    return inside, around


def _against_tokenizer(folder: Path, path: Path) -> list[Row]:
    """Stream the same text by the reference and by the fast engine."""
    texts = documents(5_000_000)
    source = write_jsonl(folder / "text.jsonl", texts)
    size = sum(len(text.encode()) for text in texts) / 1e6
    rows = []
    for mode in ("sequential", "bin"):
        inside, around = _around_reference(source, path, mode)
        fast = _drain(_opened(source, packing_mode=mode, tokenizer=_tokenizer(path, "auto")))
        took = best_seconds({"fast": fast}, rounds=5, clock=time.process_time)["fast"]
        rows += [
            Row(name=f"{mode}: by the reference", value=size / (inside + around), unit="MB/s"),
            at_most(
                f"{mode}: around the reference's own time", 100 * around / inside, "%", target=15
            ),
            at_least(
                f"{mode}: by the fast engine",
                size / took,
                "MB/s",
                baseline=size / (inside + around),
                target=5,
            ),
        ]
    return rows


def _stages(folder: Path, path: Path) -> list[Row]:
    """Say where the time of the fast engine's stream goes: read, encode, pack."""
    texts = documents(20_000_000)
    source = write_jsonl(folder / "more.jsonl", texts)
    stream = _opened(source, tokenizer=_tokenizer(path, "auto"))
    arrivals = Arrivals(stream.source, Deal(), stream.config.data)
    encoder = Encoder(stream.vocabulary, stream.config.data.tokenizer)

    def read() -> int:
        return sum(1 for epoch in arrivals.epochs(Bookmark()) for _ in epoch)

    def encode() -> None:
        for epoch in arrivals.epochs(Bookmark()):
            for group in grouped(epoch, 1 << 30, 1 << 19):
                encoder.encode(group)

    jobs = {"read": read, "encode": encode, "whole": _drain(stream)}
    seconds = best_seconds(jobs, rounds=7, clock=time.process_time)
    parts = {
        "reading and shuffling": seconds["read"],
        "encoding": seconds["encode"] - seconds["read"],
        "packing and batching": seconds["whole"] - seconds["encode"],
    }
    name = getattr(stream.vocabulary.tokenizer, "engine", "reference")
    return [
        Row(name=f"{name}: {part}", value=100 * took / seconds["whole"], unit="% of the stream")
        for part, took in parts.items()
    ]


def _waiting(folder: Path, path: Path) -> list[Row]:
    """Let a trainer take twice as long for a step as the stream does, and count its waiting."""
    config = {
        "data": {
            "backend": "local_text",
            "local_files": str(folder / "text.jsonl"),
            "grain_prefetch": 2,
            "shuffle_buffer_size": 256,
            "tokenizer": _tokenizer(path, "reference"),
        },
        "train": {"seq_len": SEQ_LEN, "batch_size": 8},
    }
    with StreamPipeline(config) as pipeline:
        begin = time.perf_counter()
        made = sum(1 for _ in islice(pipeline, 20))
        step = 2 * (time.perf_counter() - begin) / made
        waited, begin = 0.0, time.perf_counter()
        for _ in range(40):
            asked = time.perf_counter()
            next(pipeline)
            waited += time.perf_counter() - asked
            time.sleep(step)  # as a trainer does whose work is on a device
        share = 100 * waited / (time.perf_counter() - begin)
    return [at_most("waiting, trainer half as fast, prefetch 2", share, "%", target=5)]


def _resuming(folder: Path, path: Path) -> list[Row]:
    """Restore in the middle and ask for a batch; the state is what is saved."""
    rows = []
    for mode in ("sequential", "bin"):
        stream = _opened(
            folder / "text.jsonl",
            packing_mode=mode,
            shuffle_buffer_size=256,
            tokenizer=_tokenizer(path, "auto"),
        )
        batches = Batches(stream)
        for _ in islice(batches, 30):
            pass
        state = batches.get_state()

        def resume(stream: OpenedStream = stream, state: dict[str, Any] = state) -> None:
            resumed = Batches(stream)
            resumed.set_state(state)
            next(resumed)

        took = best_seconds({"resume": resume}, rounds=5)["resume"]
        rows += [
            Row(name=f"{mode}: resumed, first batch", value=1000 * took, unit="ms"),
            at_most(f"{mode}: state", len(json.dumps(state)) / 1024, "KiB", target=1024),
        ]
    return rows


def _utilisation(folder: Path) -> list[Row]:
    """Pack lognormal lengths of median 500 into rows of 2,048, 1,000 documents at a time."""
    chance = np.random.default_rng(0)
    lengths = chance.lognormal(np.log(500), 1.0, 10_000).astype(int) + 1
    source = write_jsonl(folder / "lengths.jsonl", ["x" * length for length in lengths.tolist()])
    stream = _opened(
        source, packing_mode="bin", packing_buffer_docs=1000, tokenizer={"kind": "byte"}
    )
    batches = Batches(stream)
    for _ in batches:
        pass
    told = stats_of(batches.get_state(), seq_len=SEQ_LEN)
    return [
        at_least(
            "bin: utilisation, 1,000 documents a block",
            100 * told["utilisation"],
            "%",
            baseline=None,
            target=99,
        )
    ]


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in _measure_here()]))
