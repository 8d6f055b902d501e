"""The loader for a training loop: batches of this rank, on a device, with a state.

One thread makes `prefetch` batches ahead; no worker processes, no second copy on the host.
What Lightning and Accelerate look for in a loader (`state_dict`, `__len__`, `dataset`) is
there, and as it is no torch DataLoader they leave its ranks and order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import torch

from tokenreel.display import named, never_raising
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.fields import FIELDS
from tokenreel.feed.recipe import Recipe
from tokenreel.torch.dataset import FeedDataset
from tokenreel.torch.ranks import Group
from tokenreel.torch.tensors import TensorBatch
from tokenreel.torch.transfer import Transfer, host_memory


class FeedLoader:
    """A rank's batches from the current step on, as dicts of tensors on a device.

    An iteration ends where the run does or, with `epoch_steps`, at the next multiple of it; one
    over a recipe with `passes` begins anew each time, but for the one behind a loaded state.
    `rank` and `world_size` are those of torch.distributed (of `group`) unless given; they are
    looked up when an iteration begins, and all ranks compare what they see. `num_workers`, which
    calls of a DataLoader have, must be 0.
    """

    def __init__(
        self,
        feed: Feed | Recipe | str | PathLike[str],
        *,
        rank: int | None = None,
        world_size: int | None = None,
        group: Group = None,
        prefetch: int = 2,
        epoch_steps: int | None = None,
        fields: Sequence[str] = FIELDS,
        device: torch.device | str | None = None,
        num_workers: int = 0,
    ) -> None:
        if num_workers:
            raise ConfigError(
                "a FeedLoader needs no worker processes: a thread makes batches ahead",
                expected="num_workers=0",
                actual=num_workers,
                remedy="leave num_workers out; prefetch says how many batches are made ahead",
            )
        self._transfer = Transfer(device)
        self.dataset = FeedDataset(
            feed,
            rank=rank,
            world_size=world_size,
            group=group,
            prefetch=prefetch,
            epoch_steps=epoch_steps,
            fields=fields,
            allocate=host_memory(self._transfer.device),
        )

    @property
    def feed(self) -> Feed:
        """The feed behind it."""
        return self.dataset.feed

    def __len__(self) -> int:
        """How many batches an iteration from a border to the next has."""
        return len(self.dataset)

    def __iter__(self) -> Iterator[TensorBatch]:
        return map(self._transfer, self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """Return where the feed is: a step, and what it must fit to be loaded."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says; a state of something else raises MismatchError."""
        self.dataset.load_state_dict(state)

    @never_raising
    def __repr__(self) -> str:
        facts = [f"device {self._transfer.device}", *self.dataset.facts()]
        return named("FeedLoader", facts, [repr(self.feed)])
