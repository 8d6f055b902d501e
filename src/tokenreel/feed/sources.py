"""What a recipe names, opened: stores, the plans of their rows, and the order of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenreel.errors import ConfigError, MismatchError
from tokenreel.feed.recipe import Recipe, Source
from tokenreel.layouts.open_store import open_store
from tokenreel.order.deal import Deal, deal_key
from tokenreel.order.grouped_order import GroupedOrder
from tokenreel.order.order import Order, SourceRows
from tokenreel.order.schedule import Change, normalised, shares_of
from tokenreel.rows.kinds import KINDS
from tokenreel.rows.row_plan import RowKind, RowPlan
from tokenreel.rows.untrained import remedy_for_prompts
from tokenreel.store.split import Split
from tokenreel.store.store import Store


def open_source(source: Source, *, check_ids: bool | int = False) -> Store:
    """Open the store of a source; `check_ids` as a Feed has it."""
    store = open_store(
        source.path,
        layout=source.layout,
        dtype=source.dtype,
        vocab_size=source.vocab_size,
        eos_id=source.eos_id,
        mode=source.mode,
    )
    return store if check_ids is False else checking_ids(store, source.name, check_ids)


def checking_ids(store: Store, name: str, vocab_size: bool | int) -> Store:
    """Return a store that raises for ids outside a vocabulary of this size; True: its own."""
    limit = store.vocab_size if vocab_size is True else vocab_size
    if limit is None or limit < 1:
        raise ConfigError(
            f"source {name!r}: there is no vocabulary to check ids against",
            where=store.path,
            expected="a store that records its vocabulary, or check_ids of 1 or more",
            actual=None if limit is None else limit,
            remedy="give the source its vocab_size, or the model's as check_ids",
        )
    splits = {
        split.name: Split(split.name, [shard.checking_ids(limit) for shard in split.shards])
        for split in store.splits.values()
    }
    return replace(store, splits=splits)


def check_tokenizers(sources: Sequence[Source], stores: Sequence[Store]) -> None:
    """Raise MismatchError if stores are known to be of different tokenizers."""
    known = [
        (source.name, store.tokenizer_fingerprint)
        for source, store in zip(sources, stores, strict=True)
        if store.tokenizer_fingerprint is not None
    ]
    if not known:
        return
    first, expected = known[0]
    differing = {
        f"tokenizer of {name!r}, as against {first!r}": (expected, fingerprint)
        for name, fingerprint in known
        if fingerprint != expected
    }
    if differing:
        raise MismatchError(
            "the stores are of different tokenizers, so an id means another text in each",
            differing=dict(differing),
            remedy="build them with one tokenizer, or insist with mixed_tokenizers",
        )


def plan_rows(source: Source, store: Store, recipe: Recipe) -> RowPlan:
    """Return the rows of a source; what is planned once is looked for beside the store."""
    kind = KINDS[source.rows]
    _check_groups(source, store, kind)
    settings = {name: getattr(source, name) for name in kind.settings}
    given = {name: value for name, value in settings.items() if value is not None}
    return kind.plan(store, store[source.split], recipe.seq_len, **given)


def _check_groups(source: Source, store: Store, kind: RowKind) -> None:
    """Refuse rows in which a rejected answer would be trained like any text, and pairs of none."""
    if store[source.split].has_groups == kind.shows_groups:
        return
    of_groups = " or ".join(name for name, item in KINDS.items() if item.shows_groups)
    raise ConfigError(
        f"source {source.name!r}: its store holds "
        + ("no groups of answers" if kind.shows_groups else "groups of answers, some rejected"),
        where=store.path,
        expected="a store built with pairs=True" if kind.shows_groups else f"rows of {of_groups}",
        actual=f"rows of {source.rows}",
        remedy=remedy_for_prompts(store[source.split])
        if kind.shows_groups
        else f'give the source rows="{of_groups}"',
    )


def order_rows(recipe: Recipe, plans: Sequence[RowPlan]) -> Order:
    """Return the order of a recipe's run."""
    rows = [
        SourceRows(
            name=source.name,
            num_rows=plan.num_rows // recipe.group_size,
            shuffle=source.shuffle,
            max_epochs=source.max_epochs if recipe.passes is None else recipe.passes,
        )
        for source, plan in zip(recipe.sources, plans, strict=True)
    ]
    if recipe.passes is not None:
        # By their sizes, so that all sources end with the pass.
        sizes = shares_of([item.num_rows for item in rows], temperature=1.0)
        order = Order(rows, shares=None if _is_in_order(recipe) else sizes, seed=recipe.seed)
        return _in_groups(order, recipe)
    names = [source.name for source in recipe.sources]
    weights = {source.name: source.weight for source in recipe.sources}
    num_groups = recipe.global_batch_size // recipe.group_size  # of a step
    changes = [
        Change(
            start=phase.start_step * num_groups,
            shares=normalised(phase.weights, names, temperature=recipe.temperature),
            ramp=phase.ramp_steps * num_groups,
        )
        for phase in recipe.phases
    ]
    shares = normalised(weights, names, temperature=recipe.temperature)
    return _in_groups(Order(rows, shares=shares, changes=changes, seed=recipe.seed), recipe)


def _in_groups(order: Order, recipe: Recipe) -> Order:
    return order if recipe.group_size == 1 else GroupedOrder(order, size=recipe.group_size)


def deal_rows(recipe: Recipe, plans: Sequence[RowPlan]) -> Deal:
    """Return how the rows of a recipe's steps are dealt to their seats."""
    num_rows = None
    if recipe.passes is not None:
        num_rows = recipe.passes * sum(plan.num_rows for plan in plans)
    is_dealt = len(plans) > 1 and not (recipe.passes is not None and _is_in_order(recipe))
    key = deal_key(recipe.seed) if is_dealt else None
    return Deal(
        batch_size=recipe.global_batch_size,
        num_rows=num_rows,
        key=key,
        group_size=recipe.group_size,
    )


def _is_in_order(recipe: Recipe) -> bool:
    return not any(source.shuffle for source in recipe.sources)
