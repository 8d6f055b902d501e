"""Random examples of a fine-tuning cache, padded or cut: contract 002's sampler.

A face of `tokenreel.dropin.caches.chat_ids`, whose `assistant_mask` says which targets are
trained; padding never is. An example whose first T + 1 tokens hold nothing of an assistant
gives a row of -100 only.

The contract passes `eot_id` alone; the ids of the roles are those of meta.json beside the
tokens (special_token_ids). Without one the assistant's id is `eot_id` - 1, as in the original
vocabulary, with a warning, or the optional `asst_id`. An id that meta.json contradicts is a
MismatchError.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from niels_gpt.cache.mmap import open_examples
from tokenreel.dropin.caches.cache_parts import special_ids
from tokenreel.dropin.caches.chat_ids import gather_scanned
from tokenreel.dropin.document_heads import DocumentHeads
from tokenreel.dropin.torch_rows import draw_rows, on_device
from tokenreel.errors import ConfigError

if TYPE_CHECKING:
    import torch


class SFTExampleDataset:
    """Sample x, y and y_masked from `*_tokens.bin` and `*_idx.npy`."""

    def __init__(
        self,
        tokens_path: str,
        idx_path: str,
        *,
        T: int,  # noqa: N803 - the contract's name
        device: str,
        eot_id: int,
        asst_id: int | None = None,
    ) -> None:
        if T < 1:
            raise ConfigError("a row of no tokens", where="T", expected=">= 1", actual=T)
        self.T = T
        self.device = device
        self.eot_id = eot_id
        self._ids = special_ids(Path(tokens_path).parent, eot_id=eot_id, asst_id=asst_id)
        self.asst_id = self._ids.asst
        self._examples = DocumentHeads(open_examples(tokens_path, idx_path), T, min_tokens=1)

    def __len__(self) -> int:
        return self._examples.num_rows

    def get_batch(
        self,
        *,
        B: int,  # noqa: N803 - the contract's name
        generator: torch.Generator,
    ) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor]:
        """Return x, y and y_masked, each (B, T) int64 on the device."""
        rows = draw_rows(len(self), B, generator=generator)
        scanned = gather_scanned(self._examples, rows, ids=self._ids)
        tensors: tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor] = on_device(
            (scanned.inputs, scanned.targets, scanned.labels), self.device
        )
        return tensors
