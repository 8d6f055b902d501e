"""What a page is told of the state of a stream: where it stands, and what its packers hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.inspect.targets import SavedStream
from tokenreel.stream.stream_state import COUNTS, LaneState, join_states
from tokenreel.view.subject import Subject

ANY_VOCABULARY = 2**32  # a state does not say how many ids there are


def state_facts(subject: Subject) -> dict[str, Any]:
    """Return the facts of the state, lane by lane; ConfigError where it is none."""
    if not isinstance(subject.target, SavedStream):
        raise ConfigError(
            "this is no state of a stream",
            where=subject.title,
            expected="what get_state() of a stream returned",
            actual=subject.kind,
        )
    state = join_states([subject.target.state])  # checks the digest of each lane
    lanes = {
        name: LaneState.from_dict(fields, vocab_size=ANY_VOCABULARY)
        for name, fields in state["lanes"].items()
    }
    counts = {
        name: sum(int(lane.counts[number]) for lane in lanes.values())
        for number, name in enumerate(COUNTS)
    }
    return {
        "facts": [
            ["batches made", state["step"]],
            ["lanes", len(lanes)],
            ["documents in them", counts["documents"]],
            ["tokens in them", counts["tokens"]],
            ["tokens held by packers", sum(len(lane.held.ids) for lane in lanes.values())],
            ["fingerprint", str(state["fingerprint"])],
            ["version", state["version"]],
        ],
        "counts": counts,
        "lanes": [_lane(name, lane, state["lanes"][name]) for name, lane in lanes.items()],
        "identity": state["identity"],
    }


def _lane(name: str, lane: LaneState, fields: Mapping[str, Any]) -> dict[str, Any]:
    place = fields["place"]
    return {
        "lane": name,
        "epoch": place["epoch"],
        "number": place["number"],
        "cursor": place.get("cursor"),
        "documents_held": len(lane.held),
        "tokens_held": len(lane.held.ids),
        "taken": lane.taken,
        "counts": dict(zip(COUNTS, lane.counts.tolist(), strict=True)),
    }
