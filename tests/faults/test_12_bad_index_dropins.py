"""Fault 12 at contract 000: a bad episodes.idx is an error before any slice."""

from __future__ import annotations

import struct

import pytest
from tests.dropin.making import config
from tests.faults.test_12_bad_index_foreign import BAD_PAIRS, put_episodes

from tokenreel.dropin import GPTEpisodeDataLoader
from tokenreel.errors import DamageError

UNSORTED = {
    "and overlapping": [(5, 2), (0, 6)],
    "and past the end": [(9, 2), (0, 2)],
    "and negative as int64": [(2**64 - 1, 1), (0, 2)],
    "and a length of 2**63": [(5, 2**63), (0, 2)],
}


@pytest.mark.parametrize("pairs", UNSORTED.values(), ids=UNSORTED)
def test_an_index_that_is_not_sorted_is_checked_all_the_same(tmp_path, pairs):
    put_episodes(tmp_path, pairs)
    with pytest.raises(DamageError, match=r"episodes\.idx: document \d of the index"):
        GPTEpisodeDataLoader(config(), None, tmp_path)


# Contract 000 asks for no order, so that alone is no damage here.
@pytest.mark.parametrize("name", [name for name in BAD_PAIRS if name != "not monotone"])
def test_bad_episodes_are_refused_when_the_loader_is_made(tmp_path, name):
    put_episodes(tmp_path, BAD_PAIRS[name])
    with pytest.raises(DamageError, match=r"episodes\.idx: document \d of the index"):
        GPTEpisodeDataLoader(config(), None, tmp_path)


def test_an_index_that_ends_amid_a_record_is_refused(tmp_path):
    put_episodes(tmp_path, [(0, 4)])
    with (tmp_path / "train" / "episodes.idx").open("ab") as file:
        file.write(struct.pack("<Q", 5))
    with pytest.raises(DamageError, match=r"episodes\.idx: the file ends at byte 24"):
        GPTEpisodeDataLoader(config(), None, tmp_path)


@pytest.mark.parametrize("name", ["tokens.bin", "episodes.idx"])
def test_a_file_that_is_missing_is_named(tmp_path, name):
    put_episodes(tmp_path, [(0, 4)])
    (tmp_path / "train" / name).unlink()
    with pytest.raises(DamageError, match=rf"{name}: the file is missing"):
        GPTEpisodeDataLoader(config(), None, tmp_path)
