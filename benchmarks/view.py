"""What the page waits for: a step of 512 rows of 32,768 tokens, a piece of a row, a time line.

Times are those of the answer as JSON, as the server makes it: from the question to the bytes.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, at_most, best_seconds
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.writer import StoreWriter
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import byte_tokenizer
from tokenreel.text.turns import TURN
from tokenreel.view.answers import Answers
from tokenreel.view.subject import subject_of

SEQ_LEN, NUM_ROWS = 32_768, 512
DOCUMENT_TOKENS = 400
NUM_TOKENS = 40_000_000
TURN_TOKENS = 100
MILLISECOND = 1e-3
RUNS = (("windows", "text"), ("packed", "text"), ("packed", "chat"), ("packed", "weighed"))


def measure() -> list[Row]:
    """Return the times of answers for large steps, of documents and of chats."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tokenreel-bench-") as name:
        folder = Path(name)
        for path in ("text", "chat", "weighed"):
            _write(folder / path, turns=path == "chat", weights=path == "weighed")
        for kind, path in RUNS:
            answers = _answers(folder / path, rows=kind)
            rows += _measure(f"{path}, {kind}", answers)
    return rows


def _measure(name: str, answers: Answers) -> list[Row]:
    steps = iter(range(10**6))
    last = SEQ_LEN - 4_096
    jobs = {
        "a step of 512 x 32,768": (100, lambda: _ask(answers, f"api/step/{next(steps)}")),
        "4,096 slots of a row": (
            50,
            lambda: _ask(answers, f"api/step/{next(steps)}/row/7", start=last, stop=SEQ_LEN),
        ),
        "12 rows of 400 slots": (
            100,
            lambda: _ask(answers, f"api/step/{next(steps)}/rows", stop=12, slots=400),
        ),
        "600 columns of the time line": (100, lambda: _ask(answers, "api/reel", columns=600)),
        "a document": (50, lambda: _ask(answers, f"api/document/0/{next(steps)}")),
        "the steps of a document": (100, lambda: _ask(answers, f"api/where/0/{next(steps)}")),
    }
    # Of the process alone: an answer is made by one thread, and others use the machine too.
    measured = {key: job for key, (_, job) in jobs.items()}
    best = best_seconds(measured, rounds=5, clock=time.process_time)
    return [
        at_most(f"{name}: {key}", best[key] / MILLISECOND, "ms", target=target)
        for key, (target, _) in jobs.items()
    ]


def _ask(answers: Answers, path: str, **query: int) -> bytes:
    asked = [(key, str(value)) for key, value in query.items()]
    return json.dumps(answers.answer(path, asked), separators=(",", ":")).encode()


def _answers(path: Path, *, rows: str) -> Answers:
    sources = [
        Source(name="a", path=path, rows=rows, weight=0.7),  # type: ignore[arg-type]
        Source(name="b", path=path, rows=rows, weight=0.3),  # type: ignore[arg-type]
    ]
    phases = [Phase(start_step=5_000, ramp_steps=1_000, weights={"a": 0.5, "b": 0.5})]
    recipe = Recipe(
        seq_len=SEQ_LEN, global_batch_size=NUM_ROWS, steps=20_000, sources=sources, phases=phases
    )
    subject = subject_of(Feed(recipe), title="bench", tokenizer=byte_tokenizer())
    return Answers([subject])


def _write(path: Path, *, turns: bool, weights: bool) -> None:
    """Write documents of printable bytes: chats of four turns, or with a weight for each token."""
    ids = np.random.default_rng(0).integers(32, 127, NUM_TOKENS, dtype=np.uint16)
    offsets = np.arange(0, NUM_TOKENS + 1, DOCUMENT_TOKENS)
    table = np.zeros(NUM_TOKENS // TURN_TOKENS, TURN)
    number = np.arange(len(table))
    table["start"] = number * TURN_TOKENS % DOCUMENT_TOKENS
    table["length"], table["head"] = TURN_TOKENS, 4
    table["role"] = 1 + number % 2
    table["weight"] = number % 2
    documents = DocumentBatch(
        ids=ids,
        offsets=offsets,
        turns=table if turns else None,
        turn_offsets=offsets // TURN_TOKENS if turns else None,
        weights=np.arange(NUM_TOKENS) // 5 % 2 * np.float32(0.5) if weights else None,
        provenance=[Provenance(file="text.jsonl", row=row) for row in range(len(offsets) - 1)],
    )
    with StoreWriter(
        path,
        vocab_size=byte_tokenizer().vocab_size,
        turns=turns,
        weights="float32" if weights else None,
        provenance=True,
    ) as writer:
        writer.add_batch(documents)
