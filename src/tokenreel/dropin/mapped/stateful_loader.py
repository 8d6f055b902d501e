"""Contract 003's loader: batches of a dataset by a sampler, exact wherever it is resumed.

Mapped files, and mixtures of them, are gathered a whole batch at a time in one call of the
kernel, without worker processes, which only make them slower. Any other dataset, or a
collate_fn, goes through torch's DataLoader as the config says. Batches are whole: samples
at the end of an epoch that fill none are left out, on every rank alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from tokenreel.dropin.mapped.data_config import DataConfig
from tokenreel.dropin.mapped.mapped_dataset import MemoryMappedDataset
from tokenreel.dropin.mapped.mixture_dataset import MixtureDataset
from tokenreel.dropin.mapped.samplers import DistributedSampler, RankSampler
from tokenreel.dropin.saved_state import check_identity, count_of, part_of
from tokenreel.errors import ConfigError

OWNER = "data loader"


class StatefulDataLoader:
    """Iterate an epoch, then the next; `{epoch, batches_yielded, sampler}` is the state.

    With mapped files it also says which tokens it belongs to (`store`). Under
    torch.distributed all ranks compare state and tokens when an epoch is begun.

    Iteration begins where a state that was just loaded says, and otherwise, as torch's
    does, at the beginning of the epoch.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        sampler: Any = None,
        config: DataConfig | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError("bad batch_size", expected=">= 1", actual=batch_size)
        self.dataset, self.batch_size = dataset, batch_size
        self.sampler = DistributedSampler(dataset) if sampler is None else sampler
        self._config = DataConfig() if config is None else config
        self._pins_memory = self._config.pin_memory and torch.cuda.is_available()
        self._numbers = _Numbers(self.sampler, batch_size)
        self._collating = None if _is_fast(dataset, collate_fn) else self._torch_loader(collate_fn)
        self._epoch = 0
        self._batches_yielded = 0
        self._resumed = False
        self._turn = 0
        self._batches: Iterator[Any] | None = None
        if len(self) == 0:
            raise ConfigError(
                "an epoch has no full batch",
                expected=f">= {batch_size:,} samples for each rank",
                actual=len(self.sampler),
                remedy="choose a smaller batch_size",
            )

    def _torch_loader(self, collate_fn: Any) -> torch.utils.data.DataLoader[Any]:
        workers = self._config.num_workers
        return torch.utils.data.DataLoader(
            self.dataset,
            batch_sampler=self._numbers,
            collate_fn=collate_fn,
            num_workers=workers,
            prefetch_factor=self._config.prefetch_factor if workers else None,
            persistent_workers=workers > 0,
            pin_memory=self._pins_memory,
        )

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Any]:
        if not self._resumed:
            self._batches_yielded = 0
        self._resumed = False
        self._turn_sampler()
        if hasattr(self.dataset, "check_sizes"):
            self.dataset.check_sizes()
        if getattr(self.sampler, "asks_others", False):
            self.sampler.agree(self._common_facts())
        self._batches = self._gathered() if self._collating is None else iter(self._collating)
        self._turn += 1
        return _Iteration(self, self._turn)

    def __next__(self) -> Any:
        """Return the next batch of the iteration that was begun last."""
        return self._advance(self._turn)

    def _advance(self, turn: int) -> Any:
        if self._batches is None or turn != self._turn:  # it is over, or another was begun
            raise StopIteration
        try:
            batch = next(self._batches)
        except StopIteration:
            self._epoch, self._batches_yielded, self._batches = self._epoch + 1, 0, None
            self._turn_sampler()
            raise
        self._batches_yielded += 1
        return batch

    def _turn_sampler(self) -> None:
        """Let the sampler begin behind the batches that were handed out."""
        self._numbers.start = self._batches_yielded
        skip = self._batches_yielded * self.batch_size
        for name, value in (("set_epoch", self._epoch), ("set_skip", skip)):
            if hasattr(self.sampler, name):
                getattr(self.sampler, name)(value)

    def _gathered(self) -> Iterator[Any]:
        for numbers in self._numbers.arrays():
            batch = self.dataset.batch(numbers)
            if self._pins_memory:
                batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
            yield batch

    def _common_facts(self) -> dict[str, Any]:
        """What all ranks have in common."""
        state = self.state_dict()
        del state["sampler"]["rank"]
        return {"state": state, "batch_size": self.batch_size, "number of batches": len(self)}

    def _identity(self) -> dict[str, Any]:
        """What the batches depend on besides the sampler, where the dataset tells."""
        fingerprint = getattr(self.dataset, "fingerprint", None)
        return {} if fingerprint is None else {"store": fingerprint}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the batches that were handed out, whatever was made ahead."""
        sampler = self.sampler.state_dict() if hasattr(self.sampler, "state_dict") else {}
        if "samples_yielded" in sampler:  # workers may have asked the sampler for more
            sampler["samples_yielded"] = self._batches_yielded * self.batch_size
        return {
            "epoch": self._epoch,
            "batches_yielded": self._batches_yielded,
            "sampler": sampler,
            **self._identity(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on behind the last batch of the state.

        With the samplers of this module the ranks and the batch size may differ, as long
        as the place lies between two batches.
        """
        check_identity(state, self._identity(), owner=OWNER)
        epoch = count_of(state, "epoch", owner=OWNER)
        batches = count_of(state, "batches_yielded", owner=OWNER)
        said = part_of(state, "sampler", owner=OWNER)
        if said and hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(dict(said))
        if "samples_yielded" in said and "num_replicas" in said:
            counts = [
                count_of(said, name, owner=OWNER) for name in ("samples_yielded", "num_replicas")
            ]
            batches = self._batches_before(counts[0] * counts[1])
        if batches > len(self):
            raise ConfigError(
                "the state lies behind the end of the epoch", expected=len(self), actual=batches
            )
        self._epoch, self._batches_yielded, self._resumed = epoch, batches, True
        self._batches = None
        self._turn_sampler()

    def _batches_before(self, positions: int) -> int:
        global_batch = self.batch_size * getattr(self.sampler, "num_replicas", 1)
        if positions % global_batch:
            raise ConfigError(
                "the state lies within a batch of this size and number of ranks",
                expected=f"a multiple of {global_batch:,} samples",
                actual=positions,
                remedy="resume with the same global batch, or one that divides it",
            )
        return positions // global_batch


class _Iteration:
    """One pass over what is left of an epoch."""

    def __init__(self, loader: StatefulDataLoader, turn: int) -> None:
        self._loader, self._turn = loader, turn

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        return self._loader._advance(self._turn)


class _Numbers(torch.utils.data.Sampler[list[int]]):
    """The samples of each batch, from batch `start` of the epoch on.

    It does not know the loader: a circle of them would keep torch's workers from ending.
    """

    def __init__(self, sampler: Any, batch_size: int) -> None:
        self._sampler, self._batch_size = sampler, batch_size
        self.start = 0

    def __len__(self) -> int:
        return len(self._sampler) // self._batch_size

    def __iter__(self) -> Iterator[list[int]]:
        return (numbers.tolist() for numbers in self.arrays())

    def arrays(self) -> Iterator[np.ndarray]:
        """Return the same as arrays, int64 [batch_size]."""
        if isinstance(self._sampler, RankSampler):
            return self._sampler.batches(self._batch_size)
        return self._foreign_arrays()

    def _foreign_arrays(self) -> Iterator[np.ndarray]:
        samples = iter(self._sampler)
        if not hasattr(self._sampler, "set_skip"):
            samples = islice(samples, self.start * self._batch_size, None)
        for _ in range(self.start, len(self)):
            yield np.fromiter(islice(samples, self._batch_size), np.int64)


def _is_fast(dataset: Any, collate_fn: Any) -> bool:
    if collate_fn is not None:
        return False
    # A subclass may make other samples of the same files.
    mixed = type(dataset) is MixtureDataset and dataset.makes_batches
    return mixed or type(dataset) is MemoryMappedDataset
