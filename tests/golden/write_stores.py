"""Write the golden stores of format version 1: python -m tests.golden.write_stores FOLDER.

The committed ones are never written again: a change of their bytes is a new format
version, and gets golden stores of its own beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel import Provenance, StoreWriter
from tokenreel.text.turns import TURN


def write_plain(path: Path) -> None:
    """Two splits, empty documents, two shards, nothing but tokens."""
    with StoreWriter(path, vocab_size=1000, shard_bytes=32, block_bytes=16) as writer:
        for document in ([1, 2, 3, 4, 5], [], [6, 7, 8, 9, 10, 11], [999] * 9, []):
            writer.add(document)
        writer.add([500, 501], split="val")


def write_chats(path: Path) -> None:
    """Turns, weights, provenance, a tokenizer, uint32."""
    with StoreWriter(
        path,
        vocab_size=100_000,
        shard_bytes=64,
        block_bytes=32,
        turns=True,
        weights="float32",
        provenance=True,
        tokenizer={"kind": "bytes", "sha256": "0" * 64, "name": "größe"},
        build={"recipe": [1, 2.5, None, True, {"a": "b"}]},
    ) as writer:
        for number, length in enumerate((6, 4, 9)):
            turns = np.zeros(2, TURN)
            turns["start"], turns["length"] = (0, 2), (2, length - 2)
            turns["head"], turns["tail"] = 1, 0
            turns["weight"], turns["role"] = (0, 0.5), (1, 2)
            writer.add(
                np.arange(length) + 70_000,
                turns=turns,
                weights=np.arange(length) / 8,
                provenance=Provenance(file="chats.jsonl", row=number, byte=100 * number, id="№1"),
            )
        writer.add([], turns=np.zeros(0, TURN), weights=[], provenance=None)
        writer.notes["engine"] = "golden"


def write_straddling(path: Path) -> None:
    """A document on three shards, with a mask and provenance on each."""
    with StoreWriter(
        path, vocab_size=256, shard_bytes=20, block_bytes=8, weights="uint8", provenance=True
    ) as writer:
        writer.add([1, 2], weights=[0, 1], provenance=Provenance(file="a\ud800"))
        writer.add(
            np.arange(25), weights=np.arange(25) % 2, provenance=Provenance(row=2**63, id="")
        )
        writer.add([3], weights=[1])


def write_prompts(path: Path) -> None:
    """Prompts with records, of which one document has none, in three shards."""
    turn = np.zeros(1, TURN)
    settings: dict[str, Any] = {"vocab_size": 300, "shard_bytes": 16, "block_bytes": 16}
    verified = {"answer": "π", "verifier": {"at": [1, 2.5, None, True]}}
    with StoreWriter(path, **settings, turns=True, records=True) as writer:
        records: tuple[Any, ...] = (verified, {}, None, {"n": 2**70})
        for number, record in enumerate(records):
            turn["length"], turn["role"] = number + 2, 1
            writer.add(np.arange(number + 2) + 200, turns=turn, record=record)


def write_pairs(path: Path) -> None:
    """Groups of two, one and three answers, in two shards."""
    settings: dict[str, Any] = {"vocab_size": 300, "shard_bytes": 64, "block_bytes": 48}
    with StoreWriter(path, **settings, turns=True, groups=True) as writer:
        for labels in ((1, 2), (2,), (0, 0, 0)):
            turns = np.zeros(2 * len(labels), TURN)
            turns["start"] = 5 * np.arange(len(turns))
            turns["length"], turns["head"] = 5, 2
            turns["role"], turns["weight"] = (
                np.tile((1, 2), len(labels)),
                np.tile((0, 1), len(labels)),
            )
            turns["answer"] = np.repeat(np.arange(len(labels)), 2)
            turns["label"] = np.repeat(labels, 2)
            writer.add(np.arange(10 * len(labels)) + 100, turns=turns)


STORES = {
    "plain": write_plain,
    "chats": write_chats,
    "straddling": write_straddling,
    "prompts": write_prompts,
    "pairs": write_pairs,
}


def write_stores(folder: Path) -> None:
    """Write every golden store into a folder of its own."""
    for name, write in STORES.items():
        write(folder / name)


if __name__ == "__main__":
    write_stores(Path(sys.argv[1]))
