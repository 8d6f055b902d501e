"""Attention that stays within a segment, from the segment_ids of a batch, [B, T].

Tokens see the earlier tokens of their segment and themselves; padding sees padding, so
that no row of a mask is empty (its softmax would be NaN). Give position_ids to the model
as well: then a packed row has the logits its documents would have alone.
"""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask


def sdpa_mask(segment_ids: torch.Tensor) -> torch.Tensor:
    """Return the mask for scaled_dot_product_attention, bool [B, 1, T, T]; True may be seen.

    >>> sdpa_mask(torch.tensor([[1, 1, 2, 0]]))[0, 0].int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return same.tril()


def block_mask(segment_ids: torch.Tensor, *, block_size: int = 128) -> BlockMask:
    """Return the mask for flex_attention: blocks that nobody sees are left out."""

    def visible(
        row: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return (query >= key) & (segment_ids[row, query] == segment_ids[row, key])

    rows, length = segment_ids.shape
    return create_block_mask(
        visible, rows, None, length, length, device=segment_ids.device, BLOCK_SIZE=block_size
    )


def cu_seqlens(segment_ids: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the borders of all segments of the flattened batch, int32, and the longest length.

    What attention over sequences of many lengths takes; padding is a segment of its own.
    Waits for the device once, for the length.

    >>> cu_seqlens(torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1]]))
    (tensor([0, 2, 3, 4, 8], dtype=torch.int32), 4)
    """
    rows = segment_ids.reshape(-1, segment_ids.shape[-1])
    begins = torch.ones_like(rows, dtype=torch.bool)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    starts = begins.reshape(-1).nonzero().reshape(-1)
    borders = torch.cat((starts, starts.new_tensor([rows.numel()]))).int()
    return borders, int(borders.diff().max())
