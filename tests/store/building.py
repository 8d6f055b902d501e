"""Small corpora and the builds that the tests of the store make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tokenreel
from tokenreel.filesystem import LOCAL, FileSystem
from tokenreel.store.writer import StoreWriter
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import TURN

Corpus = Mapping[str, Sequence[Sequence[int]]]

# 24 bytes are 12 tokens: shards that fill, one document that straddles three, empty ones.
SMALL: dict[str, Any] = {"vocab_size": 1000, "shard_bytes": 24, "block_bytes": 16}
BOOKS: Corpus = {
    "train": [[1, 2, 3, 4, 5], [6, 7, 8, 9], [], list(range(10, 40)), [40, 41], [], [42] * 11],
    "val": [[900, 901, 902], [903]],
}
# One full shard, one document on two shards, one shard of another split: a crash at every
# operation is a loop over some eighty of them.
LEAFLETS: Corpus = {
    "train": [[1, 2, 3, 4, 5], [6, 7, 8, 9], [], list(range(10, 30)), [30, 31]],
    "val": [[900, 901, 902], [903]],
}
OTHER_BOOKS: Corpus = {
    "train": [[501, 502, 503], [504, 505, 506, 507, 508, 509, 510, 511, 512], [513] * 7],
    "val": [[999]],
}


def build(
    path: Path,
    corpus: Corpus = BOOKS,
    *,
    filesystem: FileSystem = LOCAL,
    **options: Any,
) -> Path:
    """Build a store of a corpus, splits in turns, as a real build would mix them."""
    with StoreWriter(path, filesystem=filesystem, **{**SMALL, **options}) as writer:
        add_all(writer, corpus)
    return path


def add_all(writer: StoreWriter, corpus: Corpus) -> None:
    """Add every document of a corpus, one by one."""
    longest = max(len(documents) for documents in corpus.values())
    for number in range(longest):
        for split, documents in corpus.items():
            if number < len(documents):
                writer.add(documents[number], split=split)


def read_all(path: Path, *, mode: str = "mmap") -> dict[str, list[list[int]]]:
    """Read every document of a store through open_store."""
    return corpus_of(tokenreel.open_store(path, mode=mode))


def corpus_of(store: tokenreel.Store) -> dict[str, list[list[int]]]:
    """Return every document of an opened store."""
    return {
        name: [document.tokens.tolist() for document in split.documents()]
        for name, split in store.splits.items()
    }


def as_lists(corpus: Corpus) -> dict[str, list[list[int]]]:
    """Return a corpus in the form that `read_all` gives."""
    return {
        split: [list(document) for document in documents] for split, documents in corpus.items()
    }


def some_turns(length: int, *, weight: float = 1.0) -> np.ndarray:
    """Return the turns of a chat of `length` tokens: half the user's, half the assistant's."""
    half = length // 2
    turns = np.zeros(2, TURN)
    turns["start"], turns["length"] = (0, half), (half, length - half)
    turns["weight"], turns["role"] = (0, weight), (1, 2)
    return turns[turns["length"] > 0]


def build_full(
    path: Path,
    *,
    filesystem: FileSystem = LOCAL,
    splits: Sequence[str] = ("train", "val"),
    **options: Any,
) -> Path:
    """Build a store that has every kind of file, in two shards of each split."""
    settings = {**SMALL, "turns": True, "weights": "float32", "provenance": True, **options}
    settings = {"records": True, **settings}
    with StoreWriter(path, filesystem=filesystem, **settings) as writer:
        for split in splits:
            for number, length in enumerate((6, 4, 0, 9, 2)):
                writer.add(
                    np.arange(length) + 100 * number,
                    split=split,
                    turns=some_turns(length),
                    weights=np.arange(length) / 4,
                    provenance=Provenance(
                        file=f"{split}.jsonl", row=number, byte=81 * number, id=f"№ {number}"
                    ),
                    record={"№": number},
                )
    return path


def leftovers(path: Path) -> list[str]:
    """Return what only an unfinished build leaves: temporaries and the folder .build."""
    names: Iterable[Path] = path.rglob("*") if path.exists() else ()
    return sorted(
        str(name.relative_to(path))
        for name in names
        if name.name.endswith(".tmp") or ".build" in name.parts
    )
