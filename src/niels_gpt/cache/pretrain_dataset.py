"""Random windows over the shards of a pretraining cache: contract 002's sampler.

A face of `tokenreel.rows.sliding` and the gather kernel. Every window of T + 1 tokens
inside a shard is equally likely, with replacement: a shard is chosen in proportion to
the windows it has. Shards are mapped, and a batch touches only the pages its windows
lie on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from niels_gpt.cache.mmap import open_shards
from tokenreel.builder.torch_order import as_tensors, draw_rows
from tokenreel.feed.ids import IdRows
from tokenreel.rows.sliding import SlidingWindows

if TYPE_CHECKING:
    import torch


class PretrainTokenStreamDataset:
    """Sample x and y from a folder of `shard_*.bin`."""

    def __init__(self, shards_dir: str, *, T: int, device: str) -> None:  # noqa: N803
        self.T = T
        self.device = device
        self._windows = SlidingWindows(split=open_shards(shards_dir), seq_len=T)
        self._ids = IdRows(self._windows.split, T)

    def get_batch(
        self,
        *,
        B: int,  # noqa: N803 - the contract's name
        generator: torch.Generator,
    ) -> tuple[torch.LongTensor, torch.LongTensor]:
        """Return x and y, each (B, T) int64 on the device; y is x shifted by one token."""
        rows = draw_rows(self._windows.num_rows, B, generator=generator)
        x, y = self._ids.gather(self._windows.pieces(rows))
        return as_tensors(x, y, device=self.device)
