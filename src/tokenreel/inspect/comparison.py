"""Did my change alter the data? Two recipes, states of feeds, stores, or states of streams.

`compare` says what differs in the identity and what differs besides, and the first step whose batch
differs: exactly, or that no step differs among those that were searched. "The same" is only said
for a reason: equal identities, every step compared, or steps that cannot differ (unchanged.py).

    a recipe, a state of a feed   against either   →  fields, first step
    a store                       against a store  →  fields, first document of each split
    a state of a stream           against another  →  fields, where each of them is
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenreel.canonical import digest
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.state import leaves
from tokenreel.inspect.differences import (
    Difference,
    Differences,
    changes_of,
    differences_between,
    feed_differences,
    store_differences,
)
from tokenreel.inspect.first_step import DEFAULT_STEPS, StepSearch, find_first_step
from tokenreel.inspect.store_comparison import DEFAULT_TOKENS, SplitComparison, compare_splits
from tokenreel.inspect.targets import SavedFeed, SavedStream, Target, feed_of_state, kind_of
from tokenreel.progress import SILENT, Progress
from tokenreel.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What differs between two targets, and what is known of their batches.

    why: one sentence that gives the verdict and its reason. feeds: the two feeds whose steps can be
    compared, None where there are none. search: what is known of their steps. splits: of stores.
    """

    kind: str
    is_same: bool
    why: str
    differences: Differences
    feeds: tuple[Feed, Feed] | None = None
    search: StepSearch | None = None
    splits: Sequence[SplitComparison] = ()
    notes: Sequence[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison, ready for JSON."""
        search = self.search
        return {
            "kind": self.kind,
            "same": self.is_same,
            "why": self.why,
            "differences": [item.as_dict() for item in self.differences.identity],
            "others": [item.as_dict() for item in self.differences.others],
            "first_step": None if search is None else search.first_step,
            "proven": None if search is None else search.proven,
            "searched": None if search is None else search.stop,
            "complete": search is None or search.is_complete,
            "splits": [split.as_dict() for split in self.splits],
            "notes": list(self.notes),
        }


def compare(
    a: Target,
    b: Target,
    *,
    stores: Sequence[Store] = (),
    max_steps: int = DEFAULT_STEPS,
    max_tokens: int = DEFAULT_TOKENS,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare two targets as `open_target` opens them.

    At most `max_steps` steps are compared where no reason decides, and of two stores at most
    `max_tokens` tokens of each split. `stores` are those that the batches of states are made of,
    where the other side is not a recipe that has them.
    """
    if isinstance(a, Store) and isinstance(b, Store):
        return compare_stores(a, b, max_tokens=max_tokens, progress=progress)
    if isinstance(a, SavedStream) and isinstance(b, SavedStream):
        return compare_streams(a, b)
    if isinstance(a, (Feed, SavedFeed)) and isinstance(b, (Feed, SavedFeed)):
        return compare_feeds(a, b, stores=stores, max_steps=max_steps, progress=progress)
    raise ConfigError(
        f"a {_named(a)} cannot be compared with a {_named(b)}",
        expected="two recipes or states of feeds, two stores, or two states of streams",
        remedy="name two of the same kind",
    )


def _named(target: Target) -> str:
    return {"feed_state": "feed's state", "stream_state": "stream's state"}.get(
        kind_of(target), kind_of(target)
    )


def compare_feeds(
    a: Feed | SavedFeed,
    b: Feed | SavedFeed,
    *,
    stores: Sequence[Store] = (),
    max_steps: int = DEFAULT_STEPS,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare two recipes or states: the fields, and the steps as far as they can be made."""
    differences = feed_differences(a, b)
    opened = [
        *stores,
        *(store for feed in (a, b) if isinstance(feed, Feed) for store in feed.stores),
    ]
    notes = []
    try:
        one, other = (
            feed_of_state(item, opened) if isinstance(item, SavedFeed) else item for item in (a, b)
        )
    except ConfigError as error:
        notes.append(str(error))
        return _of_states(a, b, differences, notes)
    search = find_first_step(one, other, max_steps=max_steps, progress=progress)
    has_same_identity = a.fingerprint == b.fingerprint and changes_of(a) == changes_of(b)
    is_same = search.first_step is None and search.is_complete
    return Comparison(
        kind="feeds",
        is_same=is_same,
        why=_verdict(search, has_same_identity=has_same_identity),
        differences=differences,
        feeds=(one, other),
        search=search,
        notes=[*notes, *_notes(one, other)],
    )


def _of_states(
    a: Feed | SavedFeed, b: Feed | SavedFeed, differences: Differences, notes: list[str]
) -> Comparison:
    """Compare without making a batch: equal identities decide, up to a change of weights."""
    is_same = a.fingerprint == b.fingerprint
    why = "the identities differ; whether batches do cannot be told without the stores"
    if is_same:
        one, other = changes_of(a), changes_of(b)
        unequal = [
            i for i in range(max(len(one), len(other))) if one[i : i + 1] != other[i : i + 1]
        ]
        why = "no step differs: identities and changes of weights are equal"
        if unequal:
            is_same = False
            step = min(
                item["step"] for changes in (one, other) for item in changes[unequal[0] :][:1]
            )
            why = (
                f"the same before step {step:,}, where the weights were changed differently; what "
                "differs from there on cannot be told without the stores"
            )
    return Comparison(
        kind="feeds",
        is_same=is_same,
        why=why,
        differences=differences,
        notes=[] if is_same else notes,
    )


def _verdict(search: StepSearch, *, has_same_identity: bool) -> str:
    """Return the sentence that says which step differs first, or why none does."""
    if search.first_step is not None:
        return f"step {search.first_step:,} is the first that differs{_told_search(search)}"
    if search.is_complete and has_same_identity and search.stop == search.proven:
        return "no step differs: identities are equal, so every batch is"
    if search.is_complete and search.stop is None:
        return "no step differs, although the identities do: all rows are the same in all seats"
    if search.is_complete:
        return f"no step differs: all {search.stop:,} steps that both runs have are the same"
    return (
        f"the same in the {search.stop:,} steps searched; there are more behind them"
        f"{_told_search(search)}"
    )


def _told_search(search: StepSearch) -> str:
    """Say which steps are the same for a reason and which were compared."""
    if search.why is not None:
        return f": {search.why}"
    proven, stop = search.proven or 0, search.stop or 0
    parts = []
    if proven:
        parts.append(f"steps 0 to {proven - 1:,} cannot differ")
    if stop > proven:
        parts.append(f"steps {proven:,} to {stop - 1:,} were compared")
    return f" ({', '.join(parts)})" if parts else ""


def _notes(a: Feed, b: Feed) -> list[str]:
    """Return what a reader should know besides: numbers of sources, ends, samples."""
    notes = []
    names = [[source.name for source in feed.recipe.sources] for feed in (a, b)]
    if names[0] != names[1] and any(name in names[1] for name in names[0]):
        notes.append("sources have other numbers in source_ids; they were compared by name")
    ends = [feed.num_steps for feed in (a, b)]
    if ends[0] != ends[1]:
        told = ["never" if end is None else f"after {end:,} steps" for end in ends]
        notes.append(f"the first run ends {told[0]}, the second {told[1]}")
    if any(store.manifest is None for feed in (a, b) for store in feed.stores):
        notes.append(
            "the fingerprint of a store of another layout is of samples of its tokens; unless both "
            "sides read the same files, its rows were compared token by token"
        )
    return notes


def compare_stores(
    a: Store, b: Store, *, max_tokens: int = DEFAULT_TOKENS, progress: Progress = SILENT
) -> Comparison:
    """Compare two stores: their fields, and the content of the splits that both have."""
    differences = store_differences(a, b)
    is_equal = a.fingerprint == b.fingerprint and a.has_checksums and b.has_checksums
    splits = []
    if not is_equal:
        splits = compare_splits(a, b, max_tokens=max_tokens, progress=progress)
    alone = sorted({*a.splits} ^ {*b.splits})
    unequal = [split.name for split in splits if split.first is not None]
    is_complete = all(split.is_complete for split in splits)
    if is_equal:
        why = "the fingerprints are equal, so every checksum of every block is"
    elif alone or unequal:
        parts = [f"split {name} is only in one of them" for name in alone]
        why = "; ".join([*parts, *(f"split {name} differs" for name in unequal)])
    elif is_complete:
        why = "the same tokens, documents and sidecars; what differs is how they are kept"
    else:
        why = "the same in the tokens searched; there are more behind them"
    return Comparison(
        kind="stores",
        is_same=is_equal or (is_complete and not alone and not unequal),
        why=why,
        differences=differences,
        splits=splits,
    )


def compare_streams(a: SavedStream, b: SavedStream) -> Comparison:
    """Compare two states of streams: what they belong to, and where they are."""
    one, other = a.state, b.state
    identity = differences_between(leaves(one["identity"]), leaves(other["identity"]))
    versions = differences_between({"version": one["version"]}, {"version": other["version"]})
    places = differences_between(_places(one), _places(other))
    is_same_stream = not identity and not versions
    differs_at_once = is_same_stream and one["step"] == other["step"] and bool(places)
    if not is_same_stream:
        why = "the states are of different streams"
    elif differs_at_once:
        why = "one stream, one step, but the states differ: what was read has changed"
    elif one["step"] == other["step"]:
        why = "the states are equal: both go on with the same batches"
    else:
        steps = f"at steps {one['step']:,} and {other['step']:,}"
        why = f"one stream, {steps}: the settings are equal, what was read is not compared"
    found = [*versions, *identity, *(places if differs_at_once else [])]
    others: list[Difference] = [] if differs_at_once else places
    return Comparison(
        kind="stream_states",
        is_same=is_same_stream and not differs_at_once,
        why=why,
        differences=Differences(identity=found, others=others),
    )


def _places(state: Any) -> dict[str, Any]:
    """Return where a stream is, flat; what a packer holds by its digest."""
    lanes = {}
    for name, lane in state["lanes"].items():
        lanes[name] = {key: lane[key] for key in lane if key not in ("buffer", "cache", "digest")}
        lanes[name]["buffer"] = digest(lane.get("buffer"))
    return {"step": state["step"], **leaves(lanes, "lanes")}
