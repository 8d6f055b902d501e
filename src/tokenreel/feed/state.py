"""The state of a feed: a step, the weights changed on the way, and what they belong to.

A few hundred bytes of JSON. It fits another feed only if that would give the same
batches; the number of ranks, microbatches, prefetch and steps may differ, and so may the
place of the stores and the way they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenreel.errors import ConfigError, MismatchError, differing_fields
from tokenreel.store.canonical import digest

VERSION = 1
KEYS = frozenset({"version", "step", "changes", "fingerprint", "identity"})


def make_state(
    step: int, changes: Sequence[Mapping[str, Any]], identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the state of a feed at a step, ready for JSON."""
    return {
        "version": VERSION,
        "step": step,
        "changes": [
            {"step": change["step"], "weights": dict(change["weights"])} for change in changes
        ],
        "fingerprint": digest(identity),
        "identity": dict(identity),
    }


def check_state(state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Raise unless a state belongs to a feed of this identity and can be gone on from."""
    remedy = "resume with the stores and the recipe it was saved with"
    check_belongs(
        state, identity, version=VERSION, keys=KEYS, owner="feed", other="run", remedy=remedy
    )
    changes = state["changes"]
    if not isinstance(changes, (list, tuple)) or not all(map(_is_change, changes)):
        raise ConfigError(
            "bad changes in a feed's state",
            expected="a list of steps with their weights",
            actual=repr(changes),
        )
    steps = [*(change["step"] for change in changes), state["step"]]
    for before, step in zip([0, *steps], steps, strict=False):
        if isinstance(step, bool) or not isinstance(step, int) or step < before:
            raise ConfigError(
                "bad step in a feed's state", expected=f">= {before:,}", actual=repr(step)
            )


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
    found = state.get("version") if isinstance(state, Mapping) else None
    if found != version:
        newer = isinstance(found, int) and found > version
        raise ConfigError(
            f"unknown version of a {owner}'s state",
            expected=version,
            actual=repr(found),
            remedy="it was written by a newer tokenreel: use that" if newer else None,
        )
    missing = sorted(keys - set(state))
    if missing:
        raise ConfigError(f"not a {owner}'s state: it lacks {', '.join(missing)}")
    fingerprint = digest(identity)
    if state["fingerprint"] != fingerprint:
        differing = differing_fields(leaves(state["identity"]), leaves(identity))
        raise MismatchError(
            f"the state belongs to another {other}",
            differing=differing or {"fingerprint": (state["fingerprint"], fingerprint)},
            remedy=remedy,
        )


def _is_change(change: Any) -> bool:
    return (
        isinstance(change, Mapping)
        and set(change) == {"step", "weights"}
        and isinstance(change["weights"], Mapping)
    )


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
