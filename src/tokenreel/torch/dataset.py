"""An IterableDataset of ready batches, for loaders that want a dataset.

    DataLoader(FeedDataset(recipe), batch_size=None)          also StatefulDataLoader

The batch size is the recipe's, hence batch_size=None. Worker processes are refused: they
begin each iteration with a copy of the dataset, so none would know which steps were done,
and tokens that cross processes are 4 to 10 times slower than tokens that are gathered.
FeedRows can be read by workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from os import PathLike
from typing import Any, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from tokenreel.display import named, never_raising
from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.feed.buffers import Allocate
from tokenreel.feed.feed import Feed
from tokenreel.feed.fields import ALL, FIELDS, default_fields, extra_of, known_fields
from tokenreel.feed.group_fields import has_groups
from tokenreel.feed.recipe import Recipe
from tokenreel.torch.ranks import Group, agree, open_together
from tokenreel.torch.tensors import TensorBatch, Tensors


class FeedDataset(IterableDataset[TensorBatch]):
    """A rank's batches from the current step on, as dicts of tensors.

    An iteration ends where the run does or, with `epoch_steps`, at the next multiple of it; the
    next iteration goes on from there. That of a recipe with `passes` begins anew each time, but
    for the one behind a loaded state. Any number of ranks is served: where it does not divide
    the batch, the missing rows are padding that weighs nothing. The state is the feed's: a step,
    and what it must fit. `rank` and `world_size` are those of torch.distributed (of `group`) unless
    given.
    `allocate(shape, dtype)` gives the memory that batches are made in.
    """

    def __init__(
        self,
        feed: Feed | Recipe | str | PathLike[str],
        *,
        rank: int | None = None,
        world_size: int | None = None,
        group: Group = None,
        prefetch: int = 0,
        epoch_steps: int | None = None,
        fields: Sequence[str] = FIELDS,
        allocate: Allocate | None = None,
    ) -> None:
        for name, value, least in (("prefetch", prefetch, 0), ("epoch_steps", epoch_steps, 1)):
            if value is not None and value < least:
                raise ConfigError(f"bad {name}", expected=f">= {least}", actual=value)
        known_fields(fields, known=ALL)
        self._allocate = allocate
        self.feed = open_together(feed, rank=rank, world_size=world_size, group=group)
        self.tensors = Tensors(default_fields(fields, has_groups=has_groups(self.feed.plans)))
        self.prefetch = prefetch
        refuse_epochs_of_passes(self.feed, epoch_steps)
        self.epoch_steps = epoch_steps
        self._rank, self._world_size, self._group = rank, world_size, group

    def __len__(self) -> int:
        """How many batches an iteration from a border to the next has."""
        if self.epoch_steps is None:
            return len(self.feed)
        return min(self.epoch_steps, self.feed.num_steps or self.epoch_steps)

    def __iter__(self) -> Iterator[TensorBatch]:
        if get_worker_info() is not None:
            raise WorkersError
        rank, world_size = agree(
            self.feed, rank=self._rank, world_size=self._world_size, group=self._group
        )
        stream = self.feed.stream(
            rank=rank,
            world_size=world_size,
            prefetch=self.prefetch,
            allocate=self._allocate,
            extra=extra_of(self.tensors.fields),
        )
        return self._stream(stream)

    def _stream(self, stream: Iterator[Batch]) -> Iterator[TensorBatch]:
        with closing(stream) as batches:  # type: ignore[type-var]
            for batch in batches:
                is_last = self._is_border(batch.step + 1)
                tensors = self.tensors(batch)
                del batch
                yield tensors
                # Else this frame would hold memory that its consumer has dropped.
                del tensors
                if is_last:
                    return

    def _is_border(self, step: int) -> bool:
        """Does an epoch end before this step? Where the run ends, the stream says so itself."""
        if self.epoch_steps is None or step == self.feed.num_steps:
            return False
        return step % self.epoch_steps == 0

    def state_dict(self) -> dict[str, Any]:
        """Return where the feed is: a step, and what it must fit to be loaded."""
        return self.feed.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state says; a state of something else raises MismatchError."""
        self.feed.load_state_dict(state)

    @never_raising
    def __repr__(self) -> str:
        return named("FeedDataset", self.facts(), [repr(self.feed)])

    def facts(self) -> list[str]:
        """Return what a repr tells of it, besides the feed."""
        rank = "ranks of torch.distributed"
        if self._rank is not None:
            rank = f"rank {self._rank} of {self._world_size}"
        epoch = [] if self.epoch_steps is None else [f"epochs of {self.epoch_steps:,} steps"]
        return [rank, f"prefetch {self.prefetch}", *epoch]

    def __reduce__(self) -> NoReturn:
        """Refuse to be sent to another process, where the tokens would arrive as a copy."""
        raise WorkersError


def refuse_epochs_of_passes(feed: Feed, epoch_steps: int | None) -> None:
    """Raise ConfigError for epochs of an evaluation, which begins anew each time."""
    if epoch_steps is not None and feed.recipe.passes is not None:
        raise ConfigError(
            "an evaluation has no epochs: each iteration shows all of its passes",
            actual=f"epoch_steps of {epoch_steps:,}",
            remedy="leave out epoch_steps, or passes",
        )


class WorkersError(ConfigError):
    """Worker processes were asked for.

    A DataLoader makes the error of a worker anew, from the text of its traceback. This one keeps
    its own words instead, so that the user reads one line.
    """

    def __init__(self, traceback: str = "") -> None:
        del traceback
        super().__init__(
            "a feed has one place to count its steps, worker processes would repeat them",
            expected="num_workers=0",
            remedy="FeedLoader needs none: a thread makes `prefetch` batches ahead",
        )
