"""Contract 003's mixture: several datasets end to end, each sample saying which it is of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np
import torch

from tokenreel.canonical import digest
from tokenreel.dropin.mapped.mapped_dataset import MemoryMappedDataset, SliceBatches, slices_of
from tokenreel.errors import ConfigError
from tokenreel.store.split import Split


class MixtureDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """The samples of all datasets in turn, with `dataset_idx`; how often, a sampler says."""

    def __init__(self, datasets: Sequence[Any], names: Sequence[str]) -> None:
        if not datasets or len(datasets) != len(names) or len(set(names)) != len(names):
            raise ConfigError(
                "a mixture needs datasets and one name of its own for each",
                expected=f"{len(datasets)} different names",
                actual=", ".join(names) or "none",
            )
        self.datasets, self.dataset_names = list(datasets), list(names)
        self.cumulative_sizes = list(accumulate(map(len, datasets), initial=0))
        self._bounds = np.array(self.cumulative_sizes[1:])
        self._batches: SliceBatches | None = None

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> dict[str, Any]:
        number = index(idx)
        if not 0 <= number < len(self):
            raise IndexError(f"no sample {number:,} of {len(self):,}")
        which = bisect_right(self.cumulative_sizes, number) - 1
        sample = self.datasets[which][number - self.cumulative_sizes[which]]
        return {**sample, "dataset_idx": which}

    @property
    def makes_batches(self) -> bool:
        """Whether `batch` serves: all datasets are mapped files, and of one shape."""
        if not all(type(item) is MemoryMappedDataset for item in self.datasets):
            return False
        kinds = {(item.seq_len, item.pack_sequences, item.eos_token_id) for item in self.datasets}
        return len(kinds) == 1

    def batch(self, indices: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the samples with these numbers as one batch; `dataset_idx` is int64 [B]."""
        if self._batches is None:
            self._batches = self._joined()
        arrays = self._batches(indices)
        arrays["dataset_idx"] = self._bounds.searchsorted(indices, side="right")
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _joined(self) -> SliceBatches:
        """Take the files of all datasets as those of one: their samples are numbered alike."""
        first = self.datasets[0]
        shards = [shard for item in self.datasets for shard in item.split.shards]
        sizes = [item.vocab_size for item in self.datasets]
        return SliceBatches(
            slices_of(Split("mixture", shards), first.seq_len),
            eos_id=first.eos_token_id if first.pack_sequences else None,
            vocab_size=None if None in sizes else max(sizes),
        )

    @property
    def fingerprint(self) -> str | None:
        """What tells these tokens from others; None where a dataset does not say."""
        each = [getattr(item, "fingerprint", None) for item in self.datasets]
        return None if None in each else digest(each)

    def check_sizes(self) -> None:
        """Raise DamageError if a file of a dataset has changed its size."""
        for item in self.datasets:
            if hasattr(item, "check_sizes"):
                item.check_sizes()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all datasets that have one, as "dataset_0", "dataset_1", …"""
        return {
            f"dataset_{number}": item.state_dict()
            for number, item in enumerate(self.datasets)
            if hasattr(item, "state_dict")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the datasets that the state has; other keys are let be."""
        for number, item in enumerate(self.datasets):
            if f"dataset_{number}" in state and hasattr(item, "load_state_dict"):
                item.load_state_dict(state[f"dataset_{number}"])

    def close(self) -> None:
        """Close all datasets that can be closed."""
        self._batches = None
        for item in self.datasets:
            if hasattr(item, "close"):
                item.close()
