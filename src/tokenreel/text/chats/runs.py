"""A rendered chat as runs of tokens, for people and programs to look at.

A run is one control token, or text, all of it trained or none of it. What a run of text says is
decoded from the control token before it, since a token by itself may lose the blank in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A control token, or consecutive tokens of text, and what they say."""

    ids: tuple[int, ...]
    text: str
    is_control: bool
    is_trained: bool

    def as_dict(self) -> dict[str, object]:
        """Return the run, ready for JSON."""
        kinds = {"control": self.is_control, "trained": self.is_trained}
        return {"text": self.text, "ids": list(self.ids), **kinds}


def runs_of(ids: np.ndarray, is_trained: Sequence[bool], tokenizer: Tokenizer) -> list[Run]:
    """Return the runs of a chat.

    >>> from tokenreel.text.tokenizers import byte_tokenizer
    >>> ids = np.array([256, 104, 105, 33])
    >>> [run.text for run in runs_of(ids, [False, False, True, True], byte_tokenizer(["<s>"]))]
    ['<s>', 'h', 'i!']
    """
    controls = set(tokenizer.control_ids.values())
    kinds = [(int(token) in controls, bool(t)) for token, t in zip(ids, is_trained, strict=True)]
    edges = [n for n in range(1, len(kinds)) if kinds[n][0] or kinds[n] != kinds[n - 1]]
    edges = [0, *edges, len(kinds)] if kinds else []
    runs, stretch = [], 0  # where the text since the last control token begins
    for start, stop in pairwise(edges):
        is_control, trained = kinds[start]
        stretch = start if is_control else stretch
        text = tokenizer.decode(ids[stretch:stop])
        if start > stretch:
            text = text[len(tokenizer.decode(ids[stretch:start])) :]
        runs.append(
            Run(
                ids=tuple(ids[start:stop].tolist()),
                text=text,
                is_control=is_control,
                is_trained=trained,
            )
        )
        stretch = stop if is_control else stretch
    return runs
