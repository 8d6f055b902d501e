"""Assembly once more, document by document, in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.seeds import derive_key, scramble, shuffled


def assembled(texts: list[str], *, end_id: int | None, **choices: Any) -> dict[str, Any]:
    """Return the documents of each split and the ledger, for a source of one chunk."""
    seed = choices.get("seed", 42)
    all_ids = [list(text.encode()) + ([] if end_id is None else [end_id]) for text in texts]
    kept = []
    dropped = {"too short": 0, "duplicate": 0, "over budget": 0}
    seen = set()
    for number, ids in enumerate(all_ids):
        if len(ids) - (end_id is not None) < choices.get("min_tokens", 1):
            dropped["too short"] += len(ids)
        elif choices.get("deduplicate") and tuple(ids) in seen:
            dropped["duplicate"] += len(ids)
        else:
            kept.append((number, ids))
            seen.add(tuple(ids))
    kept = _shuffled(kept, seed, choices)
    val, train = [], []
    truncated = 0
    val_room, train_room = choices.get("val_tokens"), choices.get("train_tokens")
    for number, ids in kept:
        if choices.get("val_frac") and _is_val(number, seed, choices["val_frac"]):
            val.append(ids)
        elif val_room:
            val.append(ids[:val_room])
            truncated += len(ids) - len(val[-1])
            val_room -= len(val[-1])
        elif train_room is None:
            train.append(ids)
        elif train_room:
            train.append(ids[:train_room])
            truncated += len(ids) - len(train[-1])
            train_room -= len(train[-1])
        else:
            dropped["over budget"] += len(ids)
    splits = {name: rows for name, rows in (("train", train), ("val", val)) if rows}
    total = sum(map(len, all_ids))
    return {"splits": splits, "truncated": truncated, "dropped": dropped, "total": total}


def _shuffled(kept: list[Any], seed: int, choices: dict[str, Any]) -> list[Any]:
    how = choices.get("shuffle", "none")
    if how == "none":
        return kept
    if how == "global":
        return [kept[i] for i in shuffled(len(kept), derive_key("shuffle", seed, "global"))]
    size = choices["shuffle_buffer"]
    blocks = [kept[start : start + size] for start in range(0, len(kept), size)]
    return [
        block[i]
        for number, block in enumerate(blocks)
        for i in shuffled(len(block), derive_key("shuffle", seed, number))
    ]


def _is_val(number: int, seed: int, val_frac: float) -> bool:
    chance = int(scramble(np.array([number]), derive_key("validation", seed))[0])
    return chance < int(val_frac * 2**64)
