"""Random examples of a fine-tuning cache, padded or cut: contract 002's sampler.

The mask is found by scanning, as the contract says: trained are the tokens behind the
assistant's id up to and including the next end-of-turn id. What is padding is known by
the example's length, so an end-of-turn id that pads is never trained. An example whose
first T + 1 tokens hold nothing of an assistant gives a row of -100 only.

The contract passes `eot_id` alone; the assistant's id is that of meta.json beside the
tokens (special_token_ids), or the optional `asst_id` where there is no meta.json. Two
that disagree are a MismatchError, neither is a ConfigError.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from niels_gpt.cache.formats import IGNORE_INDEX
from niels_gpt.cache.mmap import open_examples
from niels_gpt.cache.pretrain_dataset import import_torch
from tokenreel.errors import ConfigError, MismatchError, differing_fields
from tokenreel.store.layouts.metadata import read_metadata

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
        self.asst_id = _assistant_id(Path(tokens_path).parent, eot_id=eot_id, asst_id=asst_id)
        tokens, self._index = open_examples(tokens_path, idx_path)
        self._tokens = tokens.map()

    def __len__(self) -> int:
        return len(self._index)

    def get_batch(
        self,
        *,
        B: int,  # noqa: N803 - the contract's name
        generator: torch.Generator,
    ) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor]:
        """Return x, y and y_masked, each (B, T) int64 on the device."""
        torch = import_torch()
        if B < 1:
            raise ConfigError("a batch of no rows", where="B", expected=">= 1", actual=B)
        drawn = torch.randint(len(self), (B,), generator=generator, device=generator.device)
        rows, lengths = self._gather(drawn.cpu().numpy())
        trained = scan_assistant(rows, lengths, asst_id=self.asst_id, eot_id=self.eot_id)
        masked = np.where(trained[:, 1:], rows[:, 1:], IGNORE_INDEX)
        ids, y_masked = (torch.from_numpy(array).to(self.device) for array in (rows, masked))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), y_masked

    def _gather(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first T + 1 tokens of examples, padded, int64 [B, T + 1], and how many."""
        starts, stops = self._index.bounds(numbers)
        lengths = np.minimum(stops - starts, self.T + 1)
        places = np.arange(self.T + 1)
        # What is taken behind an example, or clipped at the last token, is padding anyway.
        rows = np.take(self._tokens, starts[:, None] + places, mode="clip").astype(np.int64)
        rows[places >= lengths[:, None]] = self.eot_id
        return rows, lengths


def scan_assistant(
    rows: np.ndarray, lengths: np.ndarray, *, asst_id: int, eot_id: int
) -> np.ndarray:
    """Tell which tokens are trained, bool [B, S]: behind `asst_id`, through the next `eot_id`.

    rows: ids [B, S]; lengths: how many of each row are not padding, [B].

    >>> scan_assistant(np.array([[3, 8, 4, 4]]), np.array([3]), asst_id=3, eot_id=4).tolist()
    [[False, True, True, False]]
    """
    places = np.arange(rows.shape[1], dtype=np.int32)
    opens = rows == asst_id
    # One number per mark, growing from left to right, odd where it opens: the last mark before
    # a token tells by its lowest bit whether the token is inside.
    marks = np.where(opens | (rows == eot_id), 2 * places + 2 + opens, 0)
    inside = np.maximum.accumulate(marks, axis=1) & 1
    trained = np.zeros(rows.shape, bool)
    trained[:, 1:] = inside[:, :-1]
    return trained & ~opens & (places < lengths[:, None])


def _assistant_id(folder: Path, *, eot_id: int, asst_id: int | None) -> int:
    known = (read_metadata(folder).tokenizer or {}).get("special_token_ids") or {}
    given = {"eot": eot_id, "asst": asst_id}
    asked = {name: value for name, value in given.items() if value is not None and name in known}
    differing = differing_fields({name: known[name] for name in asked}, asked)
    if differing:
        raise MismatchError(
            "these are not the special tokens the cache was built with",
            where=folder,
            differing=differing,
        )
    found = known.get("asst", asst_id)
    if not isinstance(found, int):
        raise ConfigError(
            "the id of the assistant's role is not known",
            where=folder,
            expected="special_token_ids in meta.json beside the tokens, or asst_id",
            remedy="pass asst_id=…",
        )
    return found
