"""The turn table: weights from it, cutting it, and finding it in bare ids."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.text.turns import (
    ROLE_CODES,
    TURN,
    clip_turns,
    scan_turns,
    token_weights,
    trained_lengths,
)

SIZES = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 5), st.integers(0, 2), st.sampled_from([0, 0.5, 1])
    ),
    max_size=6,
)


def table(sizes: list[tuple[int, int, int, float]]) -> tuple[np.ndarray, int]:
    """Return turns laid end to end and the number of tokens."""
    turns = np.zeros(len(sizes), TURN)
    start = 0
    for number, (head, content, tail, weight) in enumerate(sizes):
        length = head + content + tail
        turns[number] = (start, length, head, tail, weight, ROLE_CODES["assistant"], 0, 0)
        start += length
    return turns, start


def test_a_record_is_24_bytes_with_known_places() -> None:
    assert TURN.itemsize == 24
    assert TURN.fields is not None
    assert [TURN.fields[name][1] for name in TURN.names or ()] == [0, 8, 12, 14, 16, 20, 21, 22]


@given(SIZES, st.integers(0, 40), st.integers(0, 40))
def test_cutting_the_table_is_cutting_the_weights(
    sizes: list[tuple[int, int, int, float]], start: int, length: int
) -> None:
    turns, num_tokens = table(sizes)
    start = min(start, num_tokens)
    stop = min(start + length, num_tokens)
    clipped = clip_turns(turns, start, stop=stop)
    whole = token_weights(turns, num_tokens)
    assert token_weights(clipped, stop - start).tolist() == whole[start:stop].tolist()
    assert trained_lengths(clipped).sum() == np.count_nonzero(whole[start:stop])


@given(SIZES)
def test_weights_equal_a_loop_over_tokens(sizes: list[tuple[int, int, int, float]]) -> None:
    turns, num_tokens = table(sizes)
    expected = [
        np.float32(weight) if 0 <= place < content else 0
        for head, content, tail, weight in sizes
        for place in range(-head, content + tail)
    ]
    assert token_weights(turns, num_tokens).tolist() == expected


def test_scanned_turns_end_with_the_first_end_of_turn_or_before_the_next_role() -> None:
    ids = np.array([5, 1, 7, 9, 9, 2, 8, 1, 9])
    turns = scan_turns(ids, {1: ROLE_CODES["user"], 2: ROLE_CODES["assistant"]}, end_id=9)
    assert turns["start"].tolist() == [1, 5, 7]
    assert turns["length"].tolist() == [3, 2, 2]
    assert turns["weight"].tolist() == [0, 1, 0]


def test_ids_without_roles_have_no_turns() -> None:
    assert len(scan_turns(np.array([5, 9]), {1: 1}, end_id=9)) == 0
    assert len(scan_turns(np.zeros(0, np.int64), {1: 1}, end_id=9)) == 0
