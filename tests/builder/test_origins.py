"""Columns of provenance give the bytes that objects give, added one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel.store.origins import Origins, OriginTable
from tokenreel.text.provenance import Provenance

PROVENANCES = st.builds(
    Provenance,
    file=st.none() | st.sampled_from(["a.jsonl", "b/ü.txt", ""]),
    row=st.none() | st.integers(0, 2**64 - 2),
    byte=st.none() | st.integers(0, 9),
    id=st.none() | st.text(max_size=4),
)


def columns(origins: list[Provenance]) -> Origins:
    records, strings = OriginTable().add(origins)
    return Origins(records, np.frombuffer(strings, np.uint8))


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(st.lists(PROVENANCES, max_size=8), min_size=1, max_size=4))
def test_a_table_takes_columns_as_it_takes_objects(parts: list[list[Provenance]]) -> None:
    by_object, by_column = OriginTable(), OriginTable()
    for part in parts:
        records, strings = by_object.add(part)
        same_records, same_strings = by_column.add(columns(part))
        assert records.tobytes() == same_records.tobytes()
        assert strings == same_strings
        assert by_object.strings_bytes == by_column.strings_bytes


@settings(max_examples=50, deadline=None)
@given(parts=st.lists(st.lists(PROVENANCES, max_size=6), min_size=1, max_size=4), data=st.data())
def test_columns_are_joined_taken_and_sliced_like_lists(
    parts: list[list[Provenance]], data: st.DataObject
) -> None:
    joined = Origins.join([columns(part) for part in parts])
    expected = [origin for part in parts for origin in part]
    assert list(joined) == expected
    if expected:
        order = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=9))
        taken = joined.take(np.array(order, np.int64))
        assert list(taken) == [expected[number] for number in order]
        assert list(taken[1:]) == list(taken)[1:]
