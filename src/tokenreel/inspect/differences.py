"""What differs between two recipes, states or stores, field by field.

Fields of the identity (a batch may depend on them, and a state is refused by a feed in which one
differs) are told apart from the others: paths, the number of steps, microbatches, how a store was
made. Sources are compared by their names, wherever they stand in the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tokenreel.errors import differing_fields
from tokenreel.feed.feed import Feed
from tokenreel.feed.state import leaves, named_changes
from tokenreel.inspect.targets import SETTINGS_OF_PLANS, SavedFeed
from tokenreel.store.store import Store

MOST_CHANGES = 100  # of weights, that are told one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field, and its value on both sides; None where a side does not have it."""

    field: str
    a: Any
    b: Any

    def below(self, prefix: str) -> Difference:
        """Return the same as a field of a part."""
        return replace(self, field=f"{prefix}.{self.field}")

    def as_dict(self) -> dict[str, Any]:
        """Return the difference, ready for JSON."""
        return {"field": self.field, "a": self.a, "b": self.b}


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Those of the identity, and the others."""

    identity: Sequence[Difference] = ()
    others: Sequence[Difference] = ()

    def below(self, prefix: str) -> Differences:
        """Return the same as fields of a part."""
        return Differences(
            identity=[item.below(prefix) for item in self.identity],
            others=[item.below(prefix) for item in self.others],
        )

    def without(self, *names: str) -> Differences:
        """Return the same but for these fields."""
        return Differences(
            identity=[item for item in self.identity if item.field not in names],
            others=[item for item in self.others if item.field not in names],
        )

    def and_also(self, more: Differences) -> Differences:
        """Return these and more of them."""
        return Differences(
            identity=[*self.identity, *more.identity], others=[*self.others, *more.others]
        )


def differences_between(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return the fields in which two flat mappings differ, in the order of their names.

    >>> differences_between({"seed": 1, "steps": 5}, {"seed": 2, "steps": 5})
    [Difference(field='seed', a=1, b=2)]
    """
    return [
        Difference(field=name, a=one, b=other)
        for name, (one, other) in differing_fields(a, b).items()
    ]


def feed_differences(a: Feed | SavedFeed, b: Feed | SavedFeed) -> Differences:
    """Return what differs between two recipes, two states, or a recipe and a state."""
    one, other = (_parts_by_source(target) for target in (a, b))
    found = differences_between(_common_fields(a), _common_fields(b))
    settings: list[Difference] = []
    for name in [name for name in one if name in other]:
        of_source = _source_differences(one[name], other[name], found)
        settings += [item.below(f"sources.{name}") for item in of_source]
    others: list[Difference] = []
    if isinstance(a, Feed) and isinstance(b, Feed):
        others = differences_between(_free_settings(a), _free_settings(b))
    if isinstance(a, SavedFeed) and isinstance(b, SavedFeed):
        others = differences_between({"step": a.state["step"]}, {"step": b.state["step"]})
    both = Differences(identity=[*found, *settings], others=others)
    return both.and_also(_store_details(a, b))


def changes_of(target: Feed | SavedFeed) -> list[dict[str, Any]]:
    """Return the weights that were changed on the way: from which step on, and which."""
    if isinstance(target, Feed):
        return target.changes
    return named_changes(target.changes, source_names(target))


def source_names(target: Feed | SavedFeed) -> list[str]:
    """Return the names of the sources, in their order."""
    return [str(item["name"]) for item in target.identity["recipe"]["sources"]]


def _common_fields(target: Feed | SavedFeed) -> dict[str, Any]:
    """Return what is not of a single source: settings, phases, changes, the list of sources."""
    identity, changes = target.identity, changes_of(target)
    recipe = {name: value for name, value in identity["recipe"].items() if name != "sources"}
    return {
        **leaves(recipe),
        **leaves(identity["order"], "order"),
        **leaves(changes[:MOST_CHANGES], "changes"),
        "changes": len(changes),
        "sources": ", ".join(source_names(target)),
    }


def _parts_by_source(target: Feed | SavedFeed) -> dict[str, tuple[Any, Any, Any]]:
    """Return the settings, the fingerprint of the store and the settings of the plan by source."""
    identity = target.identity
    parts = zip(identity["recipe"]["sources"], identity["stores"], identity["plans"], strict=True)
    return {str(item["name"]): (item, store, plan) for item, store, plan in parts}


def _source_differences(
    one: tuple[Any, Any, Any], other: tuple[Any, Any, Any], common: Sequence[Difference]
) -> list[Difference]:
    """Return what differs in a source; of its plan only what no setting of the recipe tells."""
    settings = differences_between(leaves(one[0]), leaves(other[0]))
    told = [(item.a, item.b) for item in (*settings, *common)]
    plans = differences_between(leaves(one[2]), leaves(other[2]))
    plans = [item.below("plan") for item in plans if (item.a, item.b) not in told]
    return [*settings, *differences_between({"store": one[1]}, {"store": other[1]}), *plans]


def _free_settings(feed: Feed) -> dict[str, Any]:
    """Return the settings of a recipe that no batch depends on, and what its run comes to."""
    recipe = feed.recipe
    found = {name: getattr(recipe, name) for name in _names_of_free_settings(recipe)}
    for source in recipe.sources:
        for name in _names_of_free_settings(source):
            if name not in SETTINGS_OF_PLANS:
                value = getattr(source, name)
                found[f"sources.{source.name}.{name}"] = str(value) if name == "path" else value
    return found


def _names_of_free_settings(settings: Any) -> list[str]:
    return [item.name for item in fields(settings) if not item.metadata["identity"]]


def _store_details(a: Feed | SavedFeed, b: Feed | SavedFeed) -> Differences:
    """Return what differs in the stores of sources of the same name, where both are opened."""
    found = Differences()
    if not (isinstance(a, Feed) and isinstance(b, Feed)):
        return found
    stores = dict(zip(source_names(b), b.stores, strict=True))
    for name, store in zip(source_names(a), a.stores, strict=True):
        other = stores.get(name)
        if other is not None and other.fingerprint != store.fingerprint:
            details = store_differences(store, other)
            found = found.and_also(
                details.without("fingerprint", "path").below(f"sources.{name}.store")
            )
    return found


def store_differences(a: Store, b: Store) -> Differences:
    """Return what differs between two stores, as far as their manifests or files tell it."""
    return Differences(
        identity=differences_between(_content_fields(a), _content_fields(b)),
        others=differences_between(_making_fields(a), _making_fields(b)),
    )


def _content_fields(store: Store) -> dict[str, Any]:
    """Return what the fingerprint of a store is made of, flat, without checksums."""
    found: dict[str, Any] = {"fingerprint": store.fingerprint, "layout": store.layout}
    if store.manifest is None:
        tokenizer = None if store.tokenizer is None else dict(store.tokenizer)
        facts = {"vocab_size": store.vocab_size, "tokenizer": tokenizer}
        found.update(leaves({"dtype": store.dtype.name, **facts}))
    else:
        found.update(leaves(store.manifest.facts.as_json()))
    for name, split in store.splits.items():
        counts = {"tokens": split.num_tokens, "documents": split.num_documents}
        found.update(leaves({**counts, "shards": len(split.shards)}, f"splits.{name}"))
    return found


def _making_fields(store: Store) -> dict[str, Any]:
    """Return what is known of a store besides its content: where it lies, how it was made.

    Of the report of a build only its settings: all else in it counts the content.
    """
    notes = {} if store.manifest is None else dict(store.manifest.notes)
    report = notes.pop("report", None)
    settings = report.get("settings") if isinstance(report, Mapping) else None
    known = {"path": str(store.path), "dtype_source": store.dtype_source}
    return {**known, **leaves(notes, "notes"), **leaves(settings or {}, "settings")}
