"""What a page is about: a recipe, a store or a stream's state, with what decodes its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.inspect.recorded_tokenizer import tokenizer_of
from tokenreel.inspect.targets import (
    SavedFeed,
    SavedStream,
    Target,
    feed_of_state,
    kind_of,
    open_target,
)
from tokenreel.layouts.open_store import open_store
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.text.tokenizers.id_texts import IdTexts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """A target, its stores and the texts of their ids.

    A recipe has a store for each of its sources, a store is its own, a stream's state has none.
    `id_texts` has None for a store whose tokenizer is not at hand.
    """

    title: str
    target: Feed | Store | SavedStream
    stores: tuple[Store, ...] = ()
    id_texts: tuple[IdTexts | None, ...] = ()

    @property
    def kind(self) -> str:
        """recipe, store or stream_state."""
        return kind_of(self.target)

    @property
    def fingerprint(self) -> str:
        """That of the recipe's identity, of the store, or of the stream that made the state."""
        if isinstance(self.target, SavedStream):
            return str(self.target.state["fingerprint"])
        return self.target.fingerprint

    @property
    def feed(self) -> Feed:
        """The feed of the recipe; ConfigError for another target, which has no steps."""
        if isinstance(self.target, Feed):
            return self.target
        raise ConfigError(
            "there are no steps to look at",
            where=self.title,
            expected="a recipe",
            actual=self.kind.replace("_", " "),
            remedy="open a recipe that has the store as a source",
        )

    def store(self, number: int) -> Store:
        """Return a store by its number; ConfigError where there is no such."""
        if not 0 <= number < len(self.stores):
            raise ConfigError(
                "no such store", expected=f"a number below {len(self.stores)}", actual=number
            )
        return self.stores[number]


def open_subjects(
    paths: Sequence[str],
    *,
    overrides: Sequence[str] = (),
    stores: Sequence[str] = (),
    tokenizer: str | None = None,
    force_tokenizer: bool = False,
    options: Mapping[str, Any] | None = None,
) -> list[Subject]:
    """Open what is at these paths: one thing to look at, or two to compare.

    `overrides` are settings of the recipe, of two of the second; `stores` are those that the
    batches of a feed's state are made of; `options` are declarations of `open_store`.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    targets = []
    for number, path in enumerate(paths):
        is_last = number == len(paths) - 1
        targets.append(open_target(path, overrides=overrides if is_last else (), **given))
    _refuse_unused(targets, overrides, given, paths[-1])
    known = [*(open_store(path) for path in stores), *_stores_of(targets)]
    subjects = [
        subject_of(
            feed_of_state(target, known) if isinstance(target, SavedFeed) else target,
            title=Path(path).absolute().name,
            tokenizer=tokenizer,
            force_tokenizer=force_tokenizer,
        )
        for target, path in zip(targets, paths, strict=True)
    ]
    if len({subject.kind for subject in subjects}) > 1:
        kinds = " and a ".join(subject.kind.replace("_", " ") for subject in subjects)
        raise ConfigError(f"a {kinds} have nothing to compare", remedy="name two of a kind")
    return subjects


def _stores_of(targets: Sequence[Target]) -> list[Store]:
    return [store for item in targets if isinstance(item, Feed) for store in item.stores]


def _refuse_unused(
    targets: Sequence[Target], overrides: Sequence[str], given: Mapping[str, Any], path: str
) -> None:
    """Raise ConfigError for settings that nothing of what was opened has."""
    if overrides and not isinstance(targets[-1], Feed):
        raise ConfigError("only a recipe has settings to override", where=path)
    if given and not any(isinstance(target, Store) for target in targets):
        names = ", ".join(given)
        raise ConfigError(f"only a store is opened with such declarations: {names}", where=path)


def subject_of(
    target: Feed | Store | SavedStream,
    *,
    title: str,
    tokenizer: str | Tokenizer | None = None,
    force_tokenizer: bool = False,
) -> Subject:
    """Return a target with the texts of its ids; stores of one tokenizer share them."""
    stores: tuple[Store, ...] = ()
    if isinstance(target, (Feed, Store)):
        stores = target.stores if isinstance(target, Feed) else (target,)
    known: dict[str, IdTexts] = {}
    found: list[IdTexts | None] = []
    for store in stores:
        loaded = tokenizer_of(store, tokenizer, force=force_tokenizer)
        if loaded is None:
            found.append(None)
        else:
            found.append(known.setdefault(loaded.fingerprint, IdTexts(loaded)))
    return Subject(title=title, target=target, stores=stores, id_texts=tuple(found))
