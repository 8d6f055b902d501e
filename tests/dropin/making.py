"""Folders of contracts 000 and 003, written by hand, and their rows made the slow way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

Episodes = Sequence[Sequence[int]]
PAD = 999


def put_split(
    folder: Path, episodes: Episodes, masks: Episodes | None = None, *, mask_dtype: str = "u1"
) -> Path:
    """Write tokens.bin, episodes.idx and, with masks, mask.bin."""
    folder.mkdir(parents=True)
    np.array([token for episode in episodes for token in episode], "<u4").tofile(
        folder / "tokens.bin"
    )
    lengths = [len(episode) for episode in episodes]
    starts = np.cumsum([0, *lengths[:-1]])
    np.stack([starts, lengths], axis=1).astype("<u8").tofile(folder / "episodes.idx")
    if masks is not None:
        values = [value for mask in masks for value in mask]
        np.array(values, mask_dtype).tofile(folder / "mask.bin")
    return folder


def numbered_episodes(lengths: Sequence[int]) -> list[list[int]]:
    """Return episodes that begin with their number and go on with tokens of their own."""
    return [[1000 + number, *range(1, length)] for number, length in enumerate(lengths)]


def config(**settings: Any) -> SimpleNamespace:
    """Return an object with settings as attributes."""
    known: dict[str, Any] = {"batch_size": 4, "block_size": 6, "device": "cpu"}
    return SimpleNamespace(**{**known, "pad_token_id": PAD, **settings})


def padded(episode: Sequence[int], block_size: int, pad: int) -> tuple[list[int], list[int]]:
    """Return x and y as contract 000 spells them out."""
    row = [*episode, *[pad] * (block_size + 1)][: block_size + 1]
    return row[:-1], row[1:]


def numbers_of(batch: Any) -> list[int]:
    """Return which numbered episodes a batch shows."""
    return [int(first) - 1000 for first in batch[0][:, 0]]


def put_files(folder: Path, files: dict[str, Sequence[int]], *, dtype: str = "<u2") -> Path:
    """Write flat token files, .npy or .bin by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokens in files.items():
        array = np.array(tokens, dtype)
        if name.endswith(".npy"):
            np.save(folder / name, array)
        else:
            array.tofile(folder / name)
    return folder
