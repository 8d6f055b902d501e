"""Rows of ids alone: tokens and stored weights of the same shard, however it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenreel.dropin.document_heads import DocumentHeads
from tokenreel.dropin.id_rows import IdRows
from tokenreel.feed.tokens import FEW_SHARDS
from tokenreel.layouts.open_store import open_store


@pytest.mark.parametrize("mode", ["mmap", "pread"])
@pytest.mark.parametrize("num_shards", [3, FEW_SHARDS + 1])
def test_weights_come_from_the_shard_that_the_tokens_come_from(
    tmp_path: Path, mode: str, num_shards: int
) -> None:
    for number in range(num_shards):
        folder = tmp_path / f"shard_{number:02}"
        folder.mkdir()
        tokens = np.arange(7 * number, 7 * number + 6, dtype=np.uint32)
        tokens.tofile(folder / "tokens.bin")
        tokens.astype("f4" if number % 2 else "u1").tofile(folder / "mask.bin")
        np.array([[0, 2], [2, 4]], np.uint64).tofile(folder / "episodes.idx")
    split = open_store(tmp_path, layout="episodes", mode=mode)["train"]
    heads, rows = DocumentHeads(split, 3), IdRows(split, 3)
    for numbers in ([1, 2 * num_shards - 1, 0], [4, 3]):
        x, y, weights = rows.gather_weighed(heads.pieces(np.array(numbers)), pad_id=999)
        for row, number in enumerate(numbers):
            first = 7 * (number // 2) + (number % 2) * 2
            labels = list(range(first + 1, first + (4 if number % 2 else 2)))
            padding = 3 - len(labels)
            assert x[row].tolist() == ([first, *labels] + [999] * padding)[:3]
            assert y[row].tolist() == labels + [999] * padding
            assert weights[row].tolist() == labels + [0] * padding
