"""Small stores whose every token is known, and the rows they must give, made the slow way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenreel import StoreWriter
from tokenreel.feed.batch import Batch
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.rows.row_plan import RowPlan
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import TURN, token_weights

IGNORED = -100


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: a property test writes a hundred small stores."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@dataclass(frozen=True, kw_only=True)
class Doc:
    """A document as it was written."""

    number: int
    tokens: list[int]
    weights: list[float]


class Slot(NamedTuple):
    """A token in the stream of a row; `first` begins a segment."""

    token: int
    document: int
    offset: int
    weight: float
    first: bool


Row = list[Slot]


def write_store(
    path: Path,
    lengths: Sequence[int],
    *,
    sidecar: str | None = None,
    shard_tokens: int = 10**6,
    first_token: int = 1,
    seed: int = 0,
    split: str = "train",
    **options: Any,
) -> list[Doc]:
    """Write documents of these lengths, all tokens different, with turns or weights at random."""
    chance = np.random.default_rng(seed)
    documents = []
    settings = {
        "vocab_size": 2**16,
        "shard_bytes": 2 * shard_tokens,
        "turns": sidecar == "turns",
        "weights": {"weights": "float32", "mask": "uint8"}.get(sidecar or ""),
        "provenance": True,
        **options,
    }
    with StoreWriter(path, **settings) as writer:
        token = first_token
        for number, length in enumerate(lengths):
            turns = some_turns(chance, length) if sidecar == "turns" else None
            stored = None
            if sidecar == "weights":
                stored = chance.choice(np.array([0, 0, 0.5, 1], np.float32), length)
            elif sidecar == "mask":
                stored = chance.integers(0, 2, length).astype(np.uint8)
            weights = np.ones(length, np.float32)
            if turns is not None:
                weights = token_weights(turns, length)
            elif stored is not None:
                weights = stored.astype(np.float32)
            tokens = list(range(token, token + length))
            writer.add(
                tokens,
                split=split,
                turns=turns,
                weights=stored,
                provenance=Provenance(file=f"{path.name}.jsonl", row=number),
            )
            documents.append(Doc(number=number, tokens=tokens, weights=weights.tolist()))
            token += length
    return documents


def some_turns(chance: np.random.Generator, length: int) -> np.ndarray:
    """Return turns of a chat of so many tokens, with gaps, heads and tails."""
    cuts = np.unique(chance.integers(0, length + 1, 4)) if length else np.zeros(1, int)
    turns = np.zeros(len(cuts) - 1, TURN)
    turns["start"], turns["length"] = cuts[:-1], np.diff(cuts)
    turns["head"] = chance.integers(0, 2, len(turns)) * (turns["length"] > 0)
    turns["tail"] = chance.integers(0, 2, len(turns)) * (turns["length"] > 1)
    turns["weight"] = chance.choice(np.array([0, 0.25, 1], np.float32), len(turns))
    turns["role"] = chance.integers(0, 4, len(turns))
    return turns


def window_rows(documents: Sequence[Doc], seq_len: int, *, by_document: bool = False) -> list[Row]:
    """Return the windows of a corpus that have a target."""
    stream = [
        Slot(token, doc.number, offset, doc.weights[offset], by_document and offset == 0)
        for doc in documents
        for offset, token in enumerate(doc.tokens)
    ]
    rows = []
    for start in range(0, len(stream) - 1, seq_len):
        row = stream[start : start + seq_len + 1]
        rows.append([row[0]._replace(first=True), *row[1:]])
    return [row for row in rows if num_targets(row)]


def episode_rows(
    documents: Sequence[Doc], seq_len: int, *, truncation: str = "keep_first", min_tokens: int = 2
) -> list[Row]:
    """Return one row per document that has a target after the cut."""
    rows = []
    for doc in documents:
        if len(doc.tokens) < max(min_tokens, 2):
            continue
        whole = range(len(doc.tokens))
        starts = {"keep_first": [0], "keep_last": [max(len(doc.tokens) - seq_len - 1, 0)]}.get(
            truncation, range(0, len(doc.tokens) - 1, seq_len)
        )
        for start in starts:
            shown = whole[start : start + seq_len + 1]
            row = [Slot(doc.tokens[k], doc.number, k, doc.weights[k], k == shown[0]) for k in shown]
            rows.append(row)
    return [row for row in rows if num_targets(row)]


def num_targets(row: Row) -> int:
    """Return how many tokens of a row are trained on."""
    return sum(not slot.first and slot.weight > 0 for slot in row[1:])


def fields_of(row: Row, seq_len: int, *, pad_id: int = 0) -> dict[str, list[Any]]:
    """Return the fields of one row, slot by slot."""
    fields: dict[str, list[Any]] = {
        name: [] for name in ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids")
    }
    segment = position = 0
    for k in range(seq_len):
        here = row[k] if k < len(row) else None
        if here is not None and here.first:
            segment, position = segment + 1, 0
        fields["input_ids"].append(pad_id if here is None else here.token)
        fields["segment_ids"].append(0 if here is None else segment)
        fields["position_ids"].append(0 if here is None else position)
        position += 1
        target = row[k + 1] if k + 1 < len(row) else None
        trained = target is not None and not target.first and target.weight > 0
        fields["labels"].append(target.token if target and trained else IGNORED)
        fields["loss_weights"].append(target.weight if target and trained else 0.0)
    return fields


def check_row(batch: Batch, number: int, row: Row, *, pad_id: int = 0) -> None:
    """Compare one row of a batch [B, T] with what it must be."""
    seq_len = batch.input_ids.shape[-1]
    for name, expected in fields_of(row, seq_len, pad_id=pad_id).items():
        assert getattr(batch, name)[number].tolist() == expected, name


def recipe_of(
    *sources: Source, seq_len: int = 8, global_batch_size: int = 4, **options: Any
) -> Recipe:
    """Return a recipe of sources."""
    return Recipe(seq_len=seq_len, global_batch_size=global_batch_size, sources=sources, **options)


def spans_in(rows: Sequence[Row]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (document, row, start, stop) for each run of a document's tokens in a row."""
    for number, row in enumerate(rows):
        begin = 0
        for k in range(1, len(row) + 1):
            here, before = row[k] if k < len(row) else None, row[k - 1]
            if here and (here.document, here.offset) == (before.document, before.offset + 1):
                continue
            yield before.document, number, row[begin].offset, before.offset + 1
            begin = k


def check_ledger(plan: RowPlan, num_tokens: int, trained: int) -> None:
    """Check that the account of an epoch adds up to these."""
    ledger, seq_len = plan.ledger, int(str(plan.settings["seq_len"]))
    assert ledger["tokens"] == num_tokens
    assert ledger["rows"] == plan.num_rows
    assert ledger["trained"] == trained
    assert ledger["placed"] + ledger["truncated"] + ledger["dropped"] == ledger["tokens"]
    assert ledger["placed"] + ledger["overlap"] + ledger["padding"] == ledger["slots"]
    assert ledger["slots"] == plan.num_rows * (seq_len + 1)
    assert ledger["trained"] + ledger["masked"] == ledger["placed"] + ledger["overlap"]
    assert min(ledger.values()) >= 0
