"""Steps of a feed by number. It imports nothing of Grain: the protocol is two methods.

An item costs what the feed's batch costs; Grain's machinery around it about as much again
for small batches. A pickled source is the recipe and the feed's state, some kilobytes, and
opens the stores again, checked to be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from os import PathLike
from typing import SupportsIndex

import numpy as np

from tokenreel.feed.feed import Feed
from tokenreel.feed.fields import FIELDS, default_fields, extra_of, known_fields
from tokenreel.feed.group_fields import has_groups
from tokenreel.feed.recipe import Recipe


class FeedSource:
    """A rank's part of each step, as a dict of numpy arrays."""

    def __init__(
        self,
        feed: Feed | Recipe | str | PathLike[str],
        *,
        rank: int = 0,
        world_size: int = 1,
        fields: Sequence[str] = FIELDS,
    ) -> None:
        self.feed = feed if isinstance(feed, Feed) else Feed(feed)
        self.feed.shape(rank=rank, world_size=world_size)  # raises unless 0 <= rank < world_size
        self.rank, self.world_size = rank, world_size
        named = default_fields(fields, has_groups=has_groups(self.feed.plans))
        self.fields = known_fields(named)

    def __len__(self) -> int:
        """How many steps the run has; EndlessError if it has no end."""
        return len(self.feed)

    def __getitem__(self, step: SupportsIndex) -> dict[str, np.ndarray]:
        number, stop = index(step), self.feed.num_steps
        if number < 0 or (stop is not None and number >= stop):
            end = "a run without end" if stop is None else f"{stop:,}"
            raise IndexError(f"step {number:,} of {end}")
        extra = extra_of(self.fields)
        batch = self.feed.batch(number, rank=self.rank, world_size=self.world_size, extra=extra)
        return {name: getattr(batch, name) for name in self.fields}

    def __repr__(self) -> str:
        """Name the run and the part: Grain compares it when it restores an iterator."""
        run = self.feed.fingerprint[:12]
        steps = self.feed.num_steps
        return f"FeedSource({run}, rank={self.rank}, world_size={self.world_size}, steps={steps})"
