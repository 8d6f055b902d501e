"""Check that the files of a shard make sense together, beyond their checksums."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenreel.errors import DamageError, TokenreelError
from tokenreel.store.document_index import find_documents
from tokenreel.store.document_records import record_json
from tokenreel.store.manifest import Facts, Manifest, ShardEntry
from tokenreel.store.origins import read_origin
from tokenreel.store.reader import open_shard
from tokenreel.store.shard import Shard
from tokenreel.text.turns import find_bad_answer


def check_shard_structure(
    root: Path, entry: ShardEntry, facts: Facts, damaged: set[str | None]
) -> list[TokenreelError]:
    """Return what is wrong with the indexes of a shard whose bytes are as they were written."""
    shard = open_shard(root, entry, facts, "pread")
    if any(str(root / f"{entry.path}.{kind}") in damaged for kind in facts.kinds):
        return []
    problems: list[TokenreelError] = []
    for check in (_check_documents, _check_turns, _check_weights, _check_origins, _check_records):
        try:
            check(shard)
        except TokenreelError as error:
            problems.append(error)
    return problems


def _check_documents(shard: Shard) -> None:
    _ = shard.documents


def _check_turns(shard: Shard) -> None:
    turns = shard.turns
    if turns is None or shard.turn_file is None:
        return
    starts = turns["start"].astype(np.int64)
    lasts = starts + np.maximum(turns["length"].astype(np.int64), 1) - 1
    owner = find_documents(shard.documents, starts)
    crossing = owner != find_documents(shard.documents, lasts)
    if crossing.any():
        raise DamageError(
            f"turn {int(np.argmax(crossing)):,} crosses the border of its document",
            where=shard.turn_file.path,
        )
    _check_answers(shard, turns, owner, where=shard.turn_file.path)


def _check_answers(shard: Shard, turns: np.ndarray, owner: np.ndarray, *, where: Path) -> None:
    """Check that the answers of each group follow each other; other stores have none."""
    if not shard.has_groups:
        wrong = (turns["answer"] > 0) | (turns["label"] > 0)
        bad = int(np.argmax(wrong)) if wrong.any() else None
    else:
        begins, ends = shard.documents.bounds(np.arange(len(shard.documents)))
        bad = find_bad_answer(turns, owner, turns["start"].astype(np.int64) - begins[owner])
        silent = np.setdiff1d(np.flatnonzero(ends > begins), owner)
        if len(silent):
            raise DamageError(
                f"document {int(silent[0]):,} of the shard has no turn, so it is no group",
                where=where,
            )
    if bad is not None:
        raise DamageError(
            f"turn {bad:,} fits into no group of answers",
            where=where,
            expected="answers 0, 1, 2, … of one label each" if shard.has_groups else "no groups",
            actual=f"answer {turns['answer'][bad]}, label {turns['label'][bad]}",
        )


def _check_weights(shard: Shard) -> None:
    if shard.weight_file is None:
        return
    for start in range(0, shard.num_tokens, 1 << 20):
        weights = shard.weight_file.read(start, min(start + (1 << 20), shard.num_tokens))
        largest = 1 if weights.dtype == np.uint8 else np.inf
        wrong = ~(np.isfinite(weights) & (weights >= 0) & (weights <= largest))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DamageError(
                f"the loss weight of token {start + at:,} makes no sense",
                where=shard.weight_file.path,
                actual=weights[at],
            )


def _check_origins(shard: Shard) -> None:
    if shard.origin_file is None or shard.string_file is None:
        return
    strings = shard.string_file.read(0, shard.string_file.count)
    records = shard.origin_file.read(0, shard.origin_file.count)
    distinct = np.unique(records[["file", "id"]], return_index=True)[1]
    for number in distinct:
        read_origin(records[number], strings, where=shard.string_file.path)


def _check_records(shard: Shard) -> None:
    """Check that each record is the canonical JSON of an object, or empty."""
    records = shard.records
    if records is None or shard.object_file is None:
        return
    for number in range(len(records)):
        value = records[number]
        spelled = records.spelled(number)
        if spelled and record_json(value) != spelled:
            raise DamageError(
                f"the record of document {number:,} of the shard is not in its canonical spelling",
                where=shard.object_file.path,
            )


def leftover_notes(root: Path, manifest: Manifest) -> tuple[str, ...]:
    """Name shard folders and files that the manifest does not name: harmless, but taking space."""
    paths = {entry.path for shards in manifest.splits.values() for entry in shards}
    folders = {path.split("/")[0] for path in paths}
    notes = []
    for folder in sorted(item for item in root.iterdir() if item.is_dir()):
        if folder.name.startswith("."):
            continue
        if folder.name not in folders:
            notes.append(
                f"{folder.name}/ is not part of the store (a replaced version?); "
                "remove it when no reader uses it"
            )
            continue
        strays = [
            item.name
            for item in sorted(folder.iterdir())
            if f"{folder.name}/{item.name.split('.')[0]}" not in paths
        ]
        notes += [f"{folder.name}/{name} is not part of the store" for name in strays]
    return tuple(notes)
