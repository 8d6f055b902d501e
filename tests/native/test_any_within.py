"""Whether any id lies in a run of ids: the kernel against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native

IDS = st.integers(0, 2**32 - 1) | st.integers(0, 40)
RUNS = st.lists(st.tuples(IDS, st.integers(1, 20)), max_size=8)


@given(st.lists(IDS, max_size=60), RUNS, st.integers(0, 9000))
@settings(max_examples=150, deadline=None)
def test_the_kernel_finds_what_numpy_finds(
    ids: list[int], runs: list[tuple[int, int]], padding: int
) -> None:
    extension = native.extension()
    if extension is None:
        pytest.skip("the extension is not built or not wanted")
    # What stands in front moves the ids across the border of a block.
    array = np.array([50] * padding + ids, np.uint32)
    wanted = np.array(runs, np.uint32).reshape(-1, 2)
    within = [(array >= first) & (array < np.uint64(first) + length) for first, length in runs]
    # A run that would go past the last id of 32 bits goes on at 0, as the subtraction does.
    wrapped = [array < max(0, first + length - 2**32) for first, length in runs]
    expected = any(bool(found.any()) for found in (*within, *wrapped))
    assert extension.any_within(array, wanted) is expected
