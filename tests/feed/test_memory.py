"""Memory is given out again when the last view of it is gone, and not a moment before."""

from __future__ import annotations

import numpy as np

from tokenreel.feed.memory import KEPT, Memory


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_what_nobody_holds_is_given_out_again() -> None:
    memory = Memory()
    place = address(memory.array((4, 8), np.int64))
    assert address(memory.array((8, 4), np.int64)) == place
    assert address(memory.array((64,), np.int32)) == place


def test_what_somebody_holds_is_not() -> None:
    memory = Memory()
    whole = memory.array((2, 4, 8), np.int64)
    part = whole[1][:, ::2]
    view = memoryview(whole[0])
    del whole
    assert not np.shares_memory(memory.array((2, 4, 8), np.int64), part)
    del part
    assert not np.shares_memory(memory.array((2, 4, 8), np.int64), np.asarray(view))
    kept = [memory.array((2, 4, 8), np.int64) for _ in range(2 * KEPT)]
    assert len({address(array) for array in kept}) == 2 * KEPT


def test_memory_of_another_size_is_of_no_use() -> None:
    memory = Memory()
    place = address(memory.array((4, 8), np.int64))
    other = memory.array((4, 9), np.int64)
    assert address(other) != place
    assert address(memory.array((4, 8), np.int64)) == place
