"""Natural order, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.config.paths import natural_key
from tokenreel.errors import DamageError
from tokenreel.layouts.listing import list_folder


@given(numbers=st.lists(st.integers(0, 10**6), unique=True), width=st.integers(0, 4))
def test_numbers_in_names_order_by_value(numbers, width):
    names = [f"part_{number:0{width}d}.bin" for number in numbers]
    values = [int(name[5:-4]) for name in sorted(names, key=natural_key)]
    assert values == sorted(numbers)


@given(names=st.lists(st.text(), unique=True))
def test_any_names_can_be_ordered_and_the_order_does_not_depend_on_the_start(names):
    backwards = names[::-1]
    assert sorted(names, key=natural_key) == sorted(backwards, key=natural_key)


def test_hidden_entries_are_passed_over(tmp_path):
    (tmp_path / ".tokenreel").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / ".x.bin").write_bytes(b"1")
    (tmp_path / "x.bin").write_bytes(b"12")
    folder = list_folder(tmp_path)
    assert (dict(folder.files), folder.folders) == ({"x.bin": 2}, ("a",))


def test_a_folder_that_cannot_be_read_is_an_error():
    with pytest.raises(DamageError, match="cannot be read"):
        list_folder(Path("/proc/self/environ"))
