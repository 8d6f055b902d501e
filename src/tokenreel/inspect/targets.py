"""What can be compared, opened by its path: recipes, stores, states of feeds and of streams.

A state names its stores by their fingerprints, never by a path. `feed_of_state` makes the feed that
it was saved by, of opened stores that have these fingerprints; the feed's own fingerprint is then
compared with that of the state, so the batches are those of the run or an error.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenreel.canonical import digest, parse_strict
from tokenreel.config.config_file import PARSERS
from tokenreel.errors import ConfigError, DamageError, FormatError, NoFileError, TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Recipe, Source
from tokenreel.feed.state import KEYS, VERSION, Change, check_form, check_state, leaves, told
from tokenreel.layouts.open_store import open_store
from tokenreel.store.store import Store

STREAM_KEYS = frozenset({"version", "step", "lanes", "fingerprint", "identity"})
MAX_STATE_BYTES = 2**28  # of a stream some 200 KB for each lane
SETTINGS_OF_PLANS = (
    "padding",
    "repeats",
    "answer_tokens",
)  # which the recipe's identity leaves out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedFeed:
    """A feed's state, as `state_dict` gives it, and the weights that it says were changed."""

    path: Path
    state: Mapping[str, Any]
    changes: Sequence[Change]

    @property
    def identity(self) -> dict[str, Any]:
        """What the batches depend on, as `Feed.identity` says it."""
        return dict(self.state["identity"])

    @property
    def fingerprint(self) -> str:
        """SHA-256 over `identity`."""
        return str(self.state["fingerprint"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedStream:
    """A stream's state, as `get_state` gives it."""

    path: Path
    state: Mapping[str, Any]


Target = Feed | Store | SavedFeed | SavedStream
KINDS: dict[type, str] = {
    Feed: "recipe",
    Store: "store",
    SavedFeed: "feed_state",
    SavedStream: "stream_state",
}


def kind_of(target: Target) -> str:
    """Return the kind of a target: recipe, store, feed_state or stream_state."""
    return next(name for kind, name in KINDS.items() if isinstance(target, kind))


def open_target(path: str | Path, *, overrides: Sequence[str] = (), **options: Any) -> Target:
    """Open what lies at a path, by its suffix: a recipe file, a state (.json), else a store.

    `overrides` are settings of a recipe, `options` declarations of `open_store`; ConfigError where
    such are given for something else.
    """
    place = Path(path)
    suffix = "" if place.is_dir() else place.suffix.lower()
    if overrides and suffix not in PARSERS:
        raise ConfigError("only a recipe has settings to override", where=place)
    if options and suffix in (*PARSERS, ".json"):
        names = ", ".join(options)
        raise ConfigError(f"only a store is opened with such declarations: {names}", where=place)
    if suffix in PARSERS:
        return Feed(Recipe.read(place, overrides=overrides))
    if suffix == ".json":
        return read_state_file(place)
    return open_store(place, **options)


def read_state_file(path: Path) -> SavedFeed | SavedStream:
    """Read the state of a feed or of a stream; ConfigError for a file that holds neither."""
    state: dict[str, Any] = parse_strict(_read(path), where=path)
    if "lanes" in state:
        return SavedStream(path=path, state=_checked_stream(state, path))
    if "changes" in state:
        check_form(state, version=VERSION, keys=KEYS, owner="feed")
        _check_identity(state, path)
        _check_feed_identity(state["identity"], path)
        return SavedFeed(path=path, state=state, changes=check_state(state, state["identity"]))
    raise ConfigError(
        "neither the state of a feed nor that of a stream",
        where=path,
        expected="JSON of what state_dict() or get_state() returned",
        actual=f"an object with {told(sorted(state))}",
    )


def _read(path: Path) -> bytes:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError("not a regular file", where=path)
        if facts.st_size > MAX_STATE_BYTES:
            raise ConfigError(
                "too large for a state",
                where=path,
                expected=f"<= {MAX_STATE_BYTES:,} bytes",
                actual=facts.st_size,
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, TokenreelError):
            raise
        kind = NoFileError if isinstance(error, FileNotFoundError) else ConfigError
        raise kind(f"cannot be read: {error}", where=path) from error


def _check_identity(state: Mapping[str, Any], path: Path) -> None:
    """Raise unless the identity of a state is an object and has the state's fingerprint."""
    if not isinstance(state["identity"], Mapping):
        raise FormatError("the identity of the state is no object", where=path)
    try:
        leaves(state["identity"])
        actual = digest(state["identity"])
    except (ValueError, RecursionError) as error:  # ValueError: half a character
        raise FormatError("the identity of the state cannot be hashed", where=path) from error
    if actual != state["fingerprint"]:
        raise DamageError(
            "the state does not match its fingerprint, so it was damaged or edited",
            where=path,
            expected=told(state["fingerprint"]),
            actual=actual,
            remedy="take the state as it was saved",
        )


def _check_feed_identity(identity: Mapping[str, Any], path: Path) -> None:
    """Raise FormatError unless an identity has the shape of `Feed.identity`."""
    recipe = identity.get("recipe")
    sources = recipe.get("sources") if isinstance(recipe, Mapping) else None
    stores, plans = identity.get("stores"), identity.get("plans")
    is_known = (
        isinstance(sources, list)
        and isinstance(stores, list)
        and isinstance(plans, list)
        and len(sources) == len(stores) == len(plans)
        and all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in sources)
        and all(isinstance(item, str) for item in stores)
        and all(isinstance(item, Mapping) for item in plans)
        and isinstance(identity.get("order"), Mapping)
        and len({item["name"] for item in sources}) == len(sources)
    )
    if not is_known:
        raise FormatError(
            "the identity of the state is not that of a feed",
            where=path,
            expected="recipe, stores, plans and order, as state_dict() gives them",
        )


def _checked_stream(state: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    missing = sorted(STREAM_KEYS - set(state))
    if missing:
        raise ConfigError(f"not a stream's state: it lacks {', '.join(missing)}", where=path)
    _check_identity(state, path)
    lanes = state["lanes"]
    if not isinstance(lanes, Mapping) or not all(isinstance(v, Mapping) for v in lanes.values()):
        raise FormatError("the lanes of the state are no objects", where=path)
    if type(state["step"]) is not int:
        raise FormatError("bad step in the state", where=path, actual=told(state["step"]))
    return state


def feed_of_state(saved: SavedFeed, stores: Sequence[Store]) -> Feed:
    """Return the feed of a state, made of those of the stores that have its fingerprints.

    ConfigError if one is not among them, or if this version makes other batches of them.
    """
    paths = {store.fingerprint: store.path for store in stores}
    missing = [name for name in saved.identity["stores"] if name not in paths]
    if missing:
        raise ConfigError(
            "the batches of the state cannot be made without its stores",
            where=saved.path,
            expected=f"a store with the fingerprint {missing[0][:16]}…",
            actual=", ".join(f"{name[:16]}…" for name in paths) or "none",
            remedy="name the stores that it was saved with (store=…)",
        )
    try:
        feed = Feed(_recipe_of_state(saved, paths))
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # of another version
        raise _unknown_recipe(saved, str(error)) from error
    if feed.fingerprint != saved.fingerprint:
        raise _unknown_recipe(saved, "other versions of rows or orders")
    feed.load_state_dict(dict(saved.state))
    return feed


def _recipe_of_state(saved: SavedFeed, paths: Mapping[str, Path]) -> Recipe:
    identity = saved.identity
    kept = dict(identity["recipe"])
    sources = []
    for item, store, plan in zip(
        kept.pop("sources"), identity["stores"], identity["plans"], strict=True
    ):
        given = {name: plan[name] for name in SETTINGS_OF_PLANS if name in plan}
        sources.append(Source(**{**item, **given, "path": str(paths[store])}))
    phases = [Phase(**item) for item in kept.pop("phases")]
    return Recipe(**kept, sources=sources, phases=phases, mixed_tokenizers=True)


def _unknown_recipe(saved: SavedFeed, why: str) -> ConfigError:
    return ConfigError(
        f"this version of tokenreel cannot make the batches of the state: {why}", where=saved.path
    )
