"""What a page is about: a recipe, a store or a stream's state, with what decodes its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.inspect.recorded_tokenizer import tokenizer_of
from tokenreel.inspect.targets import SavedFeed, SavedStream, Target, kind_of, open_target
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
    target: Target
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


def open_subject(
    path: str,
    *,
    overrides: Sequence[str] = (),
    tokenizer: str | None = None,
    force_tokenizer: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Subject:
    """Open what is at a path; `overrides` are for recipes, `options` those of `open_store`."""
    place = Path(path)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    target = open_target(place, overrides=overrides, **given)
    title = place.absolute().name
    if isinstance(target, SavedFeed):
        raise ConfigError(
            "the state of a feed is a step of its recipe",
            where=place,
            expected="a recipe, a store, or the state of a stream",
            remedy=f"open the recipe at that step: step={target.state['step']}",
        )
    if overrides and not isinstance(target, Feed):
        raise ConfigError("only a recipe has settings to override", where=place)
    if given and not isinstance(target, Store):
        names = ", ".join(given)
        raise ConfigError(f"only a store is opened with such declarations: {names}", where=place)
    return subject_of(target, title=title, tokenizer=tokenizer, force_tokenizer=force_tokenizer)


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
