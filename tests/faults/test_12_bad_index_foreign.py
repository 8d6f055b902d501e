"""Fault 12: an index that is not monotone, negative, overlapping, past the end, or overflowing.

(And fault 13 for the same files: a declared count of 2**63.)
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tokenreel import open_store
from tokenreel.errors import DamageError

NUM_TOKENS = 10
BAD_PAIRS = {
    "not monotone": [(5, 2), (0, 2)],
    "overlapping": [(0, 6), (5, 2)],
    "past the end": [(0, 2), (9, 2)],
    "start past the end": [(11, 0)],
    "negative as int64": [(2**64 - 1, 1)],
    "length of 2**63": [(0, 2**63)],
    "start + length overflows int64": [(2**63 - 1, 2**63 - 1)],
    "start + length overflows uint64": [(2**64 - 8, 16)],
}


def put_episodes(folder: Path, pairs: list[tuple[int, int]]) -> Path:
    (folder / "train").mkdir()
    (folder / "train" / "tokens.bin").write_bytes(bytes(4 * NUM_TOKENS))
    index = b"".join(struct.pack("<QQ", *pair) for pair in pairs)
    (folder / "train" / "episodes.idx").write_bytes(index)
    return folder


@pytest.mark.parametrize("mode", ["mmap", "pread"])
@pytest.mark.parametrize("name", BAD_PAIRS)
def test_bad_episodes_are_refused_before_any_slice(tmp_path, name, mode):
    path = put_episodes(tmp_path, BAD_PAIRS[name])
    with pytest.raises(DamageError, match=r"episodes\.idx: document \d of the index"):
        open_store(path, mode=mode)


@pytest.mark.parametrize(
    "starts",
    [[0, 5, 3], [0, -1], [-5, 2], [0, 11], [0, 2**63 - 1], [0, -(2**63)]],
)
def test_bad_offsets_of_a_fine_tuning_cache_are_refused_before_any_slice(tmp_path, starts):
    (tmp_path / "train_tokens.bin").write_bytes(bytes(2 * NUM_TOKENS))
    np.save(tmp_path / "train_idx.npy", np.array(starts, np.int64))
    with pytest.raises(DamageError, match=r"train_idx\.npy"):
        open_store(tmp_path)


def put_megatron(folder: Path, lengths: list[int], pointers: list[int], entries: list[int]) -> None:
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lengths), len(entries))
    index = head + struct.pack(f"<{len(lengths)}i", *lengths)
    index += struct.pack(f"<{len(pointers)}q", *pointers)
    index += struct.pack(f"<{len(entries)}q", *entries)
    (folder / "p.idx").write_bytes(index)
    (folder / "p.bin").write_bytes(bytes(2 * NUM_TOKENS))


@pytest.mark.parametrize(
    ("lengths", "pointers", "entries"),
    [
        ([4, 6], [0, 6], [0, 1, 2]),  # overlap
        ([4, 5], [0, 10], [0, 1, 2]),  # a hole
        ([4, 6], [2, 8], [0, 1, 2]),  # not from the start
        ([-4, 14], [0, -8], [0, 1, 2]),  # a negative length
        ([4, 6], [0, 2**63 - 1], [0, 1, 2]),  # end overflows
        ([4, 7], [0, 8], [0, 1, 2]),  # past the end
        ([4, 6], [0, 8], [0, 2, 1]),  # documents not monotone
        ([4, 6], [0, 8], [0, -1, 2]),
        ([4, 6], [0, 8], [0, 3, 2]),
        ([4, 6], [0, 8], [1, 1, 2]),  # the first sequence in no document
        ([4, 6], [0, 8], [0, 1, 1]),  # the last sequence in no document
    ],
)
@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_bad_megatron_indexes_are_refused_before_any_slice(
    tmp_path, lengths, pointers, entries, mode
):
    put_megatron(tmp_path, lengths, pointers, entries)
    with pytest.raises(DamageError, match=r"p\.(idx|bin)"):
        open_store(tmp_path, mode=mode)


def test_a_good_megatron_index_of_this_shape_opens(tmp_path):
    put_megatron(tmp_path, [4, 6], [0, 8], [0, 1, 2])
    assert open_store(tmp_path).num_documents == 2


@pytest.mark.parametrize("field", [18, 26])
@pytest.mark.parametrize("count", [2**63, 2**64 - 1, 2**40])
def test_a_huge_declared_count_is_an_error_and_allocates_nothing(tmp_path, field, count):
    put_megatron(tmp_path, [10], [0], [0, 1])
    data = bytearray((tmp_path / "p.idx").read_bytes())
    data[field : field + 8] = struct.pack("<Q", count)
    (tmp_path / "p.idx").write_bytes(bytes(data))
    tracemalloc.start()
    try:
        with pytest.raises(DamageError, match=rf"p\.idx: the header declares .*{count:,}"):
            open_store(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
