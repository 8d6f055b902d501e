"""What a rank writes down of each step: digests of the rows it trained on, and the loss.

One line of JSON per step in FOLDER/WORLD-RANK.jsonl, written when the step is done. A digest
is over every field of a row as the model was given it, so two runs with the same digests
were trained on the same batches, bit by bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A step as it was trained: by how many ranks, on which rows, with which loss."""

    step: int
    world_size: int
    rows: tuple[str, ...]
    loss: float


class Recorder:
    """Write down the steps of one rank."""

    def __init__(self, folder: Path, *, rank: int, world_size: int) -> None:
        self._file = (folder / f"{world_size}-{rank}.jsonl").open("a", encoding="utf-8")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, step: int, batch: Mapping[str, Any], *, loss: float) -> None:
        """Append a step; `batch` holds tensors [B, T]."""
        line = {"step": step, "loss": loss, "rows": row_digests(batch)}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def row_digests(batch: Mapping[str, Any]) -> list[str]:
    """Return a digest of each row of a batch of tensors, over all its fields.

    >>> import torch
    >>> ids = torch.tensor([[1, 2], [1, 2], [2, 1]])
    >>> one, same, other = row_digests({"input_ids": ids})
    >>> one == same, one == other
    (True, False)
    """
    return [
        blake2b(
            b"".join(batch[name][row].numpy().tobytes() for name in sorted(batch)), digest_size=8
        ).hexdigest()
        for row in range(len(batch["input_ids"]))
    ]


def read_steps(folder: Path, *, world_size: int) -> dict[int, Trained]:
    """Return the steps that all ranks of a run have written down, with their rows in order."""
    ranks = [_lines(folder / f"{world_size}-{rank}.jsonl") for rank in range(world_size)]
    return {
        step: Trained(
            step=step,
            world_size=world_size,
            rows=tuple(digest for lines in ranks for digest in lines[step]["rows"]),
            loss=ranks[0][step]["loss"],
        )
        for step in sorted(ranks[0])
        if all(step in lines for lines in ranks)
    }


def _lines(path: Path) -> dict[int, dict[str, Any]]:
    """Return the lines of a rank by step; one that a kill cut off is none."""
    if not path.exists():
        return {}
    whole = path.read_text("utf-8").rpartition("\n")[0]
    return {line["step"]: line for line in map(json.loads, filter(None, whole.split("\n")))}
