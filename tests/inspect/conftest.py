"""A small store with everything in it: turns or weights, provenance, several shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenreel import Provenance, StoreWriter


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a store of random documents and returns its folder."""

    def make(name: str = "books", *, num_documents: int = 40, **options: object) -> Path:
        generator = np.random.default_rng(7)
        path = tmp_path / name
        with StoreWriter(
            path,
            vocab_size=1000,
            shard_bytes=1024,
            block_bytes=256,
            weights="float32",
            provenance=True,
            **options,  # type: ignore[arg-type]
        ) as writer:
            for number in range(num_documents):
                ids = generator.integers(0, 1000, int(generator.integers(0, 60)))
                writer.add(
                    ids,
                    split="val" if number % 10 == 9 else "train",
                    weights=generator.random(len(ids)),
                    provenance=Provenance(file="a.jsonl", row=number, id=f"doc-{number}"),
                )
        return path

    return make


@pytest.fixture
def flip() -> Callable[[Path, int], None]:
    """Return a function that flips one bit of a file."""

    def flip_bit(path: Path, bit: int) -> None:
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(data)

    return flip_bit
