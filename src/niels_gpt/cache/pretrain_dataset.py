"""Random windows over the shards of a pretraining cache: contract 002's sampler.

Every window of T + 1 tokens inside a shard is equally likely, with replacement: a shard
is chosen in proportion to the windows it has. Shards are mapped, and a batch touches
only the pages its windows lie on. A batch costs one gather per shard it touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from niels_gpt.cache.mmap import open_shards
from tokenreel.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import torch


class PretrainTokenStreamDataset:
    """Sample x and y from a folder of `shard_*.bin`."""

    def __init__(self, shards_dir: str, *, T: int, device: str) -> None:  # noqa: N803
        if T < 1:
            raise ConfigError("a window of no tokens", where="T", expected=">= 1", actual=T)
        self.T = T
        self.device = device
        shards = [shard for shard in open_shards(shards_dir).shards if shard.num_tokens > T]
        if not shards:
            raise ConfigError(
                f"no shard has a window of T + 1 = {T + 1:,} tokens",
                where=shards_dir,
                remedy="choose a smaller T, or build the cache with larger shards",
            )
        self._windows = [
            np.lib.stride_tricks.sliding_window_view(shard.tokens, T + 1) for shard in shards
        ]
        self._first = np.cumsum([0, *map(len, self._windows)])

    def get_batch(
        self,
        *,
        B: int,  # noqa: N803 - the contract's name
        generator: torch.Generator,
    ) -> tuple[torch.LongTensor, torch.LongTensor]:
        """Return x and y, each (B, T) int64 on the device; y is x shifted by one token."""
        torch = import_torch()
        if B < 1:
            raise ConfigError("a batch of no rows", where="B", expected=">= 1", actual=B)
        drawn = torch.randint(
            int(self._first[-1]), (B,), generator=generator, device=generator.device
        )
        rows = torch.from_numpy(self._gather(drawn.cpu().numpy())).to(self.device)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def _gather(self, numbers: np.ndarray) -> np.ndarray:
        """Return the windows with these numbers, int64 [B, T + 1]."""
        owners = np.searchsorted(self._first, numbers, side="right") - 1
        rows = np.empty((len(numbers), self.T + 1), np.int64)
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            rows[mine] = self._windows[owner][numbers[mine] - self._first[owner]]
        return rows


def import_torch() -> Any:
    """Return torch, or raise MissingExtraError."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra="torch", purpose="sampling batches") from error
    return torch
