"""The state of a stream: where each lane is, and what it belongs to. A few KB of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenreel.errors import ConfigError, MismatchError, differing_fields
from tokenreel.feed.state import check_belongs

VERSION = 1
KEYS = frozenset({"version", "step", "lanes", "fingerprint", "identity"})
REMEDY = "resume with the source, tokenizer and configuration it was saved with"


def make_state(
    step: int, lanes: Mapping[str, Any], identity: Mapping[str, Any], fingerprint: str
) -> dict[str, Any]:
    """Return the state of a stream at a step, ready for JSON."""
    return {
        "version": VERSION,
        "step": step,
        "lanes": dict(lanes),
        "fingerprint": fingerprint,
        "identity": dict(identity),
    }


def check_state(
    state: Mapping[str, Any], identity: Mapping[str, Any], lanes: Sequence[int]
) -> None:
    """Raise unless a state belongs to a stream of this identity and holds these lanes."""
    check_belongs(
        state, identity, version=VERSION, keys=KEYS, owner="stream", other="stream", remedy=REMEDY
    )
    absent = [str(lane) for lane in lanes if str(lane) not in state["lanes"]]
    if absent:
        raise ConfigError(
            "the state is of another rank",
            expected=f"lanes {', '.join(map(str, lanes))}",
            actual=", ".join(state["lanes"]),
            remedy="join the states of all ranks with tokenreel.stream.join_states",
        )


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the states of all ranks at one step as one, which fits any number of ranks.

    >>> one = make_state(3, {"0": {}}, {}, "f")
    >>> sorted(join_states([one, make_state(3, {"1": {}}, {}, "f")])["lanes"])
    ['0', '1']
    """
    first = states[0]
    for other in states[1:]:
        facts = ("version", "step", "fingerprint")
        differing = differing_fields({k: first[k] for k in facts}, {k: other[k] for k in facts})
        if differing:
            raise MismatchError(
                "the states are not of one moment of one stream", differing=differing, remedy=REMEDY
            )
    return {**first, "lanes": {lane: at for state in states for lane, at in state["lanes"].items()}}
