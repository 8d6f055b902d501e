"""Chats from which nothing can be learned, left out and counted.

A chat is dropped if no trained token has another token before it: the first token
of a row is never a target. Its tokens move to `dropped` in the ledger. If nothing
is left, that is an error, not an empty result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenreel.errors import EmptyError
from tokenreel.text.chats.render import Rendered


def drop_untrained(rendered: Rendered) -> Rendered:
    """Return the chats that have a trained target after the shift, or raise EmptyError."""
    targets = _targets_per_chat(rendered)
    if len(targets) and targets.all():
        return rendered
    kept = np.flatnonzero(targets)
    if not len(kept):
        raise EmptyError(
            f"nothing is trained in any of {len(rendered):,} chats",
            expected="at least one trained token that is not the first of its chat",
            remedy="check the loss policy and the messages' train and weight fields",
        )
    return _select(rendered, targets > 0)


def _targets_per_chat(rendered: Rendered) -> np.ndarray:
    turns = rendered.turns
    first = turns["start"].astype(np.int64) + turns["head"]
    stop = turns["start"].astype(np.int64) + turns["length"] - turns["tail"]
    targets = np.where(turns["weight"] > 0, np.maximum(0, stop - np.maximum(first, 1)), 0)
    sums = np.concatenate(([0], np.cumsum(targets)))[rendered.turn_offsets]
    return np.diff(sums)


def _select(rendered: Rendered, kept: np.ndarray) -> Rendered:
    lengths, num_turns = np.diff(rendered.offsets), np.diff(rendered.turn_offsets)
    ledger, gone = rendered.ledger, rendered.numbers[~kept]
    trained, masked, dropped = ledger.trained.copy(), ledger.masked.copy(), ledger.dropped.copy()
    dropped[gone] += trained[gone] + masked[gone]
    trained[gone] = masked[gone] = 0
    return replace(
        rendered,
        ids=rendered.ids[np.repeat(kept, lengths)],
        offsets=np.concatenate(([0], np.cumsum(lengths[kept]))),
        turns=rendered.turns[np.repeat(kept, num_turns)],
        turn_offsets=np.concatenate(([0], np.cumsum(num_turns[kept]))),
        numbers=rendered.numbers[kept],
        ledger=replace(ledger, trained=trained, masked=masked, dropped=dropped),
    )
