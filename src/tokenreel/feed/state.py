"""The state of a feed: a step, the weights changed on the way, and what they belong to.

A few hundred bytes of JSON. It fits another feed only if that would give the same
batches; the number of ranks, microbatches, prefetch and steps may differ, and so may the
paths of the stores and the way they are read. Changes of weights are one compressed column:
at most 11 bytes for each weight of each change, and 5 ms to read for 2,000 of them.
"""

from __future__ import annotations

import base64
import binascii
import reprlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenreel.canonical import digest
from tokenreel.errors import ConfigError, MismatchError, differing_fields

VERSION = 2
KEYS = frozenset({"version", "step", "changes", "fingerprint", "identity"})
# What a state may hold; one that claims to be more is not believed: a few bytes unpack to any
# number of changes.
MAX_CHANGES = 2**16
MAX_CHANGES_BYTES = 2**27  # unpacked
MAX_STEP = 2**62

Change = tuple[int, tuple[float, ...]]  # from a step on, a weight for each source


def make_state(step: int, changes: Sequence[Change], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a feed at a step, ready for JSON."""
    return {
        "version": VERSION,
        "step": step,
        "changes": pack_changes(changes),
        "fingerprint": digest(identity),
        "identity": dict(identity),
    }


def check_state(state: Mapping[str, Any], identity: Mapping[str, Any]) -> list[Change]:
    """Return the changes of a state; raise unless it belongs to a feed of this identity."""
    remedy = "resume with the stores and the recipe it was saved with"
    check_belongs(
        state, identity, version=VERSION, keys=KEYS, owner="feed", other="run", remedy=remedy
    )
    changes = unpack_changes(state["changes"], num_sources=len(identity["stores"]))
    steps = [*(step for step, _ in changes), state["step"]]
    for before, step in zip([0, *steps], steps, strict=False):
        is_far = type(step) is int and step > MAX_STEP
        if type(step) is not int or step < before or is_far:
            raise ConfigError(
                "bad step in a feed's state",
                expected=f"<= {MAX_STEP:,}" if is_far else f">= {before:,}",
                actual=told(step),
            )
    return changes


def check_room(num_changes: int, *, num_sources: int) -> None:
    """Raise ConfigError if so many changes could be saved, but not loaded."""
    most = min(MAX_CHANGES_BYTES // (8 * (1 + num_sources)), MAX_CHANGES)
    if num_changes > most:
        raise ConfigError(
            f"the weights of {num_sources:,} sources were changed too often for a state",
            expected=f"at most {most:,} changes",
            actual=num_changes,
            remedy="change them every so many steps",
        )


def named_changes(changes: Sequence[Change], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return changes as people read them: the step, and the weights by the names of sources."""
    return [
        {"step": step, "weights": dict(zip(names, weights, strict=True))}
        for step, weights in changes
    ]


def pack_changes(changes: Sequence[Change]) -> str:
    """Return changes as text: all steps as differences, then all weights, compressed.

    >>> text = pack_changes([(5, (0.9, 0.1)), (7, (0.5, 0.5))])
    >>> unpack_changes(text, num_sources=2)
    [(5, (0.9, 0.1)), (7, (0.5, 0.5))]
    """
    if not changes:
        return ""
    steps = np.diff(np.array([step for step, _ in changes], "<i8"), prepend=0)
    weights = np.array([weights for _, weights in changes], "<f8")
    packed = zlib.compress(steps.astype("<i8").tobytes() + weights.tobytes(), 9)
    return base64.b64encode(packed).decode()


def unpack_changes(text: object, *, num_sources: int) -> list[Change]:
    """Return the changes that a text stands for, or raise ConfigError."""
    if text == "":
        return []
    try:
        unpacking = zlib.decompressobj()
        packed = base64.b64decode(text if isinstance(text, str) else b"?", validate=True)
        most = min(MAX_CHANGES_BYTES, MAX_CHANGES * 8 * (1 + num_sources))
        data = unpacking.decompress(packed, most)
    except (binascii.Error, ValueError, zlib.error):
        unpacking, data = zlib.decompressobj(), b""
    size = 8 * (1 + num_sources)
    count = len(data) // size
    weights = np.frombuffer(data, "<f8", offset=8 * count)[: count * num_sources]
    sound = (
        unpacking.eof and len(data) == count * size and ((weights >= 0) & (weights < np.inf)).all()
    )
    if not sound or not weights.reshape(count, num_sources).any(axis=1).all():
        raise ConfigError(
            "bad changes in a feed's state",
            expected=f"steps, and for each {num_sources:,} weights, as state_dict() packs them",
            actual=f"{text!r:.60}",
        )
    steps = np.cumsum(np.frombuffer(data, "<i8", count=count)).tolist()
    return list(zip(steps, map(tuple, weights.reshape(count, -1).tolist()), strict=True))


def check_belongs(
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    *,
    version: int,
    keys: frozenset[str],
    owner: str,
    other: str,
    remedy: str,
) -> None:
    """Raise unless a state has this version, these keys, and the fingerprint of this identity."""
    check_form(state, version=version, keys=keys, owner=owner)
    fingerprint = digest(identity)
    if state["fingerprint"] != fingerprint:
        differing = differing_fields(leaves(state["identity"]), leaves(identity))
        raise MismatchError(
            f"the state belongs to another {other}",
            differing=differing or {"fingerprint": (state["fingerprint"], fingerprint)},
            remedy=remedy,
        )


def check_form(state: Mapping[str, Any], *, version: int, keys: frozenset[str], owner: str) -> None:
    """Raise ConfigError unless a state has this version and these keys."""
    found = state.get("version") if isinstance(state, Mapping) else None
    if type(found) is not int or found != version:  # True is a version of nothing
        newer = type(found) is int and found > version
        raise ConfigError(
            f"unknown version of a {owner}'s state",
            expected=version,
            actual=told(found),
            remedy="it was written by a newer tokenreel: use that" if newer else None,
        )
    missing = sorted(keys - set(state))
    if missing:
        raise ConfigError(f"not a {owner}'s state: it lacks {', '.join(missing)}")


def told(value: object) -> object:
    """Return what an error says of a value: its beginning, however deep or long it is."""
    return value if type(value) is int else reprlib.repr(value)


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings and lists by their paths."""
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat.update(leaves(item, f"{prefix}.{key}" if prefix else str(key)))
    return flat
