"""Schedules and mixtures for the tests of the order."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tokenreel.order.mixture import Mixture
from tokenreel.order.schedule import Change, Schedule, make_schedule, normalised
from tokenreel.seeds import derive_key

WEIGHTS = st.one_of(
    st.just(0.0), st.just(1.0), st.just(1e-9), st.floats(1e-3, 1.0), st.integers(1, 9).map(float)
)


@st.composite
def shares(draw: st.DrawFn, num_sources: int) -> tuple[float, ...]:
    """Draw shares of sources; some are 0, some tiny."""
    names = [str(number) for number in range(num_sources)]
    weights = draw(
        st.lists(WEIGHTS, min_size=num_sources, max_size=num_sources).filter(
            lambda w: max(w) >= 1e-3
        )
    )
    return normalised(dict(zip(names, weights, strict=True)), names)


@st.composite
def schedules(draw: st.DrawFn, max_sources: int = 12) -> Schedule:
    """Draw a schedule with up to three phases, abrupt or ramped."""
    num_sources = draw(st.integers(1, max_sources))
    changes = []
    start = 0
    for _ in range(draw(st.integers(0, 3))):
        start += draw(st.integers(0, 700))
        ramp = draw(st.sampled_from([0, 0, 1, 50, 400]))
        changes.append(Change(start=start, shares=draw(shares(num_sources)), ramp=ramp))
        start += ramp
    return make_schedule(draw(shares(num_sources)), changes)


@st.composite
def mixtures(draw: st.DrawFn, max_sources: int = 12) -> Mixture:
    """Draw a mixture of a schedule."""
    schedule = draw(schedules(max_sources))
    return mixture_of(schedule, seed=draw(st.integers(0, 100)))


def mixture_of(schedule: Schedule, *, seed: int = 0) -> Mixture:
    """Return a mixture with keys of a seed."""
    keys = [derive_key("test", seed, source) for source in range(schedule.num_sources)]
    nothing = np.zeros(schedule.num_sources, np.int64)
    return Mixture(
        schedule=schedule, keys=np.array(keys, np.uint64), given=nothing, owed=nothing.astype(float)
    )
