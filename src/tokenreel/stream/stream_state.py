"""The state of a stream: where each lane is, what it has counted, and what it belongs to.

    {"version", "step", "fingerprint", "identity",
     "lanes": {"0": {"place", "buffer", "taken", "counts"[, "cache"], "digest"}, …}}

`place` is the bookmark where reading goes on. `buffer` is what the packer holds, as text
(encoded_documents.py), and `taken` how much of that has been given out: rows (bin) or tokens
(sequential). At the defaults some 200 KB of JSON for each lane; the buffer is most of it, and
holds a long document whole. `digest` is the SHA-256 over the lane's other fields, its number,
the step and the fingerprint: a state that was damaged, or put together from two moments, is
refused.

`counts` is the account of every token that was read, and every slot of every row, in the words
of rows/row_ledger.py. Of its three sums the first has one figure more in a stream:

    placed + truncated + dropped + pending  =  tokens read

Pending are documents of a block whose rows have not all been given out: so a stream counts what
is dropped, where a plan knows it as what is left. Truncated is what `max_doc_tokens` cuts off.
Dropped are documents too short to hold a transition, rows without a trained target, and what
the end leaves over (data.end = drop).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenreel.canonical import digest
from tokenreel.errors import ConfigError, DamageError, MismatchError, differing_fields
from tokenreel.feed.state import check_belongs, check_form, told
from tokenreel.stream.arrivals import Bookmark
from tokenreel.stream.encoded_documents import EncodedDocuments, from_text, no_documents

VERSION = 3
KEYS = frozenset({"version", "step", "lanes", "fingerprint", "identity"})
REMEDY = "resume with the source, tokenizer and configuration it was saved with"
COUNTS = (
    "documents",
    "short_documents",
    "truncated_documents",
    "skipped_records",
    "tokens",
    "truncated",
    "dropped",
    "placed",
    "overlap",
    "trained",
    "masked",
    "padding",
    "rows",
    "untrained_rows",
)
COLUMN = {name: number for number, name in enumerate(COUNTS)}
SHOWN = [COLUMN[name] for name in ("placed", "overlap", "trained", "masked", "padding", "rows")]


def counts_of(num_rows: int, **columns: np.ndarray | int) -> np.ndarray:
    """Return what each row adds to the account, int64 [rows, names].

    >>> counts_of(2, rows=1, padding=np.array([0, 3]))[:, COLUMN["padding"]].tolist()
    [0, 3]
    """
    counts = np.zeros((num_rows, len(COUNTS)), np.int64)
    for name, values in columns.items():
        counts[:, COLUMN[name]] = values
    return counts


def row_counts(
    shown: np.ndarray, *, overlap: np.ndarray, trained: np.ndarray, seq_len: int
) -> np.ndarray:
    """Return what rows of so many tokens add, int64 [rows, names]; tokens read are not in it."""
    return counts_of(
        len(shown),
        rows=1,
        placed=shown - overlap,
        overlap=overlap,
        trained=trained,
        masked=shown - trained,
        padding=seq_len + 1 - shown,
    )


def nothing_counted() -> np.ndarray:
    """Return an account in which nothing has happened, int64 [names]."""
    return np.zeros(len(COUNTS), np.int64)


def as_dropped(counts: np.ndarray) -> np.ndarray:
    """Return the counts of rows that are not shown: what was placed is dropped."""
    changed = counts.copy()
    changed[..., COLUMN["dropped"]] += counts[..., COLUMN["placed"]]
    changed[..., SHOWN] = 0
    return changed


def account(counts: np.ndarray, *, seq_len: int) -> dict[str, float]:
    """Return the whole account of these counts: names, what follows from them, utilisation."""
    found: dict[str, float] = dict(zip(COUNTS, counts.tolist(), strict=True))
    slots = found["rows"] * (seq_len + 1)
    found["slots"] = slots
    found["pending"] = found["tokens"] - found["placed"] - found["truncated"] - found["dropped"]
    found["utilisation"] = (slots - found["padding"]) / slots if slots else 0.0
    return found


def stats_of(state: Mapping[str, Any], *, seq_len: int) -> dict[str, float]:
    """Return the account of a state that is ready for JSON, over all its lanes."""
    lanes = [[lane["counts"][name] for name in COUNTS] for lane in state["lanes"].values()]
    return account(np.sum(lanes, axis=0), seq_len=seq_len)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneState:
    """Where a lane is; reading goes on at `held.after`. The default is the start of the stream.

    held: what its packer holds, `taken` of it given out. counts: int64 [names], the account.
    safe: the bookmark before which all documents are safely in the cache, where there is one.
    """

    held: EncodedDocuments = field(default_factory=lambda: no_documents(Bookmark()))
    taken: int = 0
    counts: np.ndarray = field(default_factory=nothing_counted)
    safe: Bookmark | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the state of the lane, ready for JSON."""
        state = {
            "place": self.held.after.as_dict(),
            "buffer": self.held.text,
            "taken": self.taken,
            "counts": dict(zip(COUNTS, self.counts.tolist(), strict=True)),
        }
        if self.safe is not None:
            state["cache"] = self.safe.as_dict()
        return state

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, vocab_size: int) -> LaneState:
        """Return the state that `as_dict` described."""
        after = _bookmark(fields, "place")
        held = from_text(fields.get("buffer"), vocab_size=vocab_size, after=after)
        counts = _table(fields, "counts")
        return cls(
            held=held,
            taken=_count(fields, "taken", most=len(held.ids)),
            counts=np.array([_count(counts, name) for name in COUNTS], np.int64),
            safe=_bookmark(fields, "cache") if "cache" in fields else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamState:
    """Where a stream is: a step, and the states of its lanes by number."""

    step: int
    lanes: Mapping[int, LaneState]

    def __deepcopy__(self, memo: object) -> StreamState:
        # Nothing of it ever changes, and Grain copies a state for every batch it makes ahead.
        return self


def write_state(
    state: StreamState, identity: Mapping[str, Any], fingerprint: str
) -> dict[str, Any]:
    """Return the state of a stream with what it belongs to, ready for JSON."""
    written: dict[str, Any] = {
        "version": VERSION,
        "step": state.step,
        "lanes": {str(number): lane.as_dict() for number, lane in state.lanes.items()},
        "fingerprint": fingerprint,
        "identity": dict(identity),
    }
    for name, lane in written["lanes"].items():
        lane["digest"] = _digest(written, name)
    return written


def read_state(
    state: Mapping[str, Any], identity: Mapping[str, Any], *, lanes: Sequence[int], vocab_size: int
) -> StreamState:
    """Return these lanes of a state; raise unless it belongs to a stream of this identity."""
    check_belongs(
        state, identity, version=VERSION, keys=KEYS, owner="stream", other="stream", remedy=REMEDY
    )
    known = _table(state, "lanes")
    if any(str(lane) not in known for lane in lanes):
        raise ConfigError(
            "the state is of another rank",
            expected=f"lanes {', '.join(map(str, lanes))}",
            actual=", ".join(known),
            remedy="join the states of all ranks with tokenreel.stream.join_states",
        )
    found = StreamState(
        step=_count(state, "step"),
        lanes={
            lane: LaneState.from_dict(_table(known, str(lane)), vocab_size=vocab_size)
            for lane in lanes
        },
    )
    for lane in lanes:
        _check_digest(state, str(lane))
    return found


def join_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the states of all ranks at one step as one, which fits any number of ranks.

    >>> one = {"version": 3, "step": 3, "fingerprint": "f", "identity": {}}
    >>> zero = {**one, "lanes": {"0": {}}}
    >>> zero["lanes"]["0"]["digest"] = _digest(zero, "0")
    >>> list(join_states([zero, {**one, "lanes": {}}])["lanes"])
    ['0']
    """
    if isinstance(states, Mapping) or not states:
        raise ConfigError("no states to join", expected="a list of the states of all ranks")
    lanes: dict[str, Any] = {}
    for state in states:
        check_form(state, version=VERSION, keys=KEYS, owner="stream")
        facts = ("step", "fingerprint")
        differing = differing_fields(
            {name: states[0][name] for name in facts}, {name: state[name] for name in facts}
        )
        if differing:
            raise MismatchError(
                "the states are not of one moment of one stream", differing=differing, remedy=REMEDY
            )
        for name, lane in _table(state, "lanes").items():
            _check_digest(state, name)
            lanes[name] = lane
    return {**states[0], "lanes": lanes}


def _digest(state: Mapping[str, Any], lane: str) -> str:
    """Return the digest of a lane of a state; raise ConfigError if the lane is no JSON."""
    fields = {key: value for key, value in state["lanes"][lane].items() if key != "digest"}
    try:
        return digest([state["fingerprint"], state["step"], lane, fields])
    except (TypeError, ValueError, RecursionError):
        raise _bad(f"lane {lane}", fields, expected="JSON") from None


def _check_digest(state: Mapping[str, Any], lane: str) -> None:
    said = _table(state["lanes"], lane).get("digest")
    if said != _digest(state, lane):
        raise DamageError(
            f"lane {lane} of a stream's state was changed after it was saved",
            expected="the digest of its content",
            actual=told(said),
            remedy="load the state as it was saved, or an earlier one",
        )


def _table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = fields.get(name)
    if not isinstance(found, Mapping):
        raise _bad(name, found, expected="a table")
    return found


def _count(fields: Mapping[str, Any], name: str, *, most: int = 2**62) -> int:
    found = fields.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise _bad(name, found, expected=f"0 to {most:,}")
    return found


def _bookmark(fields: Mapping[str, Any], name: str) -> Bookmark:
    found = _table(fields, name)
    counts = {"epoch": _count(found, "epoch"), "number": _count(found, "number")}
    try:
        return Bookmark.from_dict({**counts, "cursor": found.get("cursor")})
    except (TypeError, ValueError):  # ValueError: no JSON
        raise _bad("cursor", found.get("cursor"), expected="JSON, as text") from None


def _bad(name: str, found: object, *, expected: str) -> ConfigError:
    return ConfigError(f"bad {name} in a stream's state", expected=expected, actual=told(found))
