"""Random windows over the shards of a pretraining cache: contract 002's sampler.

A face of `tokenreel.dropin.shard_windows` and the gather kernel. Every window of T + 1 tokens
inside a shard is equally likely, with replacement: a shard is chosen in proportion to
the windows it has. Shards are mapped, and a batch touches only the pages its windows
lie on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from niels_gpt.cache.mmap import open_shards
from tokenreel.dropin.id_rows import IdRows
from tokenreel.dropin.shard_windows import ShardWindows
from tokenreel.dropin.torch_rows import draw_rows, on_device
from tokenreel.errors import ConfigError

if TYPE_CHECKING:
    import torch


class PretrainTokenStreamDataset:
    """Sample x and y from a folder of `shard_*.bin`."""

    def __init__(self, shards_dir: str, *, T: int, device: str) -> None:  # noqa: N803
        if T < 1:
            raise ConfigError("a window of no tokens", where="T", expected=">= 1", actual=T)
        self.T = T
        self.device = device
        split = open_shards(shards_dir)
        self._windows = ShardWindows(split, T + 1, stride=1)
        if self._windows.num_rows == 0:
            raise ConfigError(
                f"no shard has a window of T + 1 = {T + 1:,} tokens",
                where=split.shards[0].token_file.path.parent,
                actual=f"{int(np.diff(split.token_starts).max()):,} in the longest",
                remedy="choose a smaller T, or build the cache with larger shards",
            )
        self._ids = IdRows(split, T)

    def get_batch(
        self,
        *,
        B: int,  # noqa: N803 - the contract's name
        generator: torch.Generator,
    ) -> tuple[torch.LongTensor, torch.LongTensor]:
        """Return x and y, each (B, T) int64 on the device; y is x shifted by one token."""
        rows = draw_rows(self._windows.num_rows, B, generator=generator)
        x_y: tuple[torch.LongTensor, torch.LongTensor] = on_device(
            self._ids.gather(self._windows.pieces(rows)), self.device
        )
        return x_y
