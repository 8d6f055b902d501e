"""Fault 30 at contract 003: every rank gets the same number of batches, or none is made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.dropin import DistributedSampler, MixtureSampler, StatefulDataLoader
from tokenreel.errors import ConfigError


@given(
    total=st.integers(2, 80),
    world_size=st.integers(1, 8),
    batch_size=st.integers(1, 5),
    drop_last=st.booleans(),
    mixed=st.booleans(),
)
def test_all_ranks_have_as_many_batches_or_all_refuse(
    total, world_size, batch_size, drop_last, mixed
):
    found: set[object] = set()
    for rank in range(world_size):
        try:
            sampler = (
                MixtureSampler([0, 1, total], [1, 2], world_size, rank, drop_last=drop_last)
                if mixed
                else DistributedSampler(range(total), world_size, rank, drop_last=drop_last)
            )
            loader = StatefulDataLoader(range(total), batch_size, sampler)
            found.add((len(loader), sum(1 for _ in sampler.batches(batch_size))))
        except ConfigError as error:
            found.add(error.what)
    assert len(found) == 1
    counts = found.pop()
    assert isinstance(counts, str) or counts[0] == counts[1] > 0


def test_processes_that_do_not_know_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=r"torch\.distributed is not running"):
        DistributedSampler(range(10))
    assert len(DistributedSampler(range(10), 4, 1)) == 2
