"""tokenreel plan RECIPE: the rows of each source, and how the run is mixed."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.markup import escape

from tokenreel.cli.output import emit
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.feed.feed import Feed

# Of the account of a source, what a person wants to see, in the order it adds up.
LEDGER = (
    "tokens",
    "placed",
    "truncated",
    "dropped",
    "overlap",
    "slots",
    "trained",
    "masked",
    "padding",
    "short_documents",
    "untrained_documents",
    "untrained_rows",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)


def run(args: argparse.Namespace) -> int:
    """Plan the rows, which keeps the plans beside their stores, and describe them."""
    facts = describe(open_feed(args))
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def describe(feed: Feed) -> dict[str, Any]:
    """Return what a run is made of."""
    recipe = feed.recipe
    shares = feed.order.first_shares
    return {
        "seq_len": recipe.seq_len,
        "global_batch_size": recipe.global_batch_size,
        "steps": feed.num_steps,
        "passes": recipe.passes,
        "ending": None if feed.ending is None else str(feed.ending),
        "fingerprint": feed.fingerprint,
        "sources": [
            {
                "name": source.name,
                "rows": source.rows,
                "num_rows": plan.num_rows,
                "share": float(share),
                "steps_per_epoch": plan.num_rows / (recipe.global_batch_size * share)
                if share
                else None,
                "store": store.fingerprint,
                "ledger": getattr(plan, "ledger", None),
            }
            for source, plan, store, share in zip(
                recipe.sources, feed.plans, feed.stores, shares, strict=True
            )
        ],
    }


def _draw(console: Console, facts: dict[str, Any]) -> None:
    steps = "no end" if facts["steps"] is None else f"{facts['steps']:,} steps"
    console.print(
        f"{facts['global_batch_size']:,} rows of {facts['seq_len']:,} tokens a step; "
        f"{steps}; fingerprint {facts['fingerprint'][:16]}"
    )
    if facts["ending"]:
        console.print(escape(facts["ending"]))
    for source in facts["sources"]:
        epoch = source["steps_per_epoch"]
        console.print(
            f"[bold]{escape(source['name'])}[/bold]: {source['num_rows']:,} {source['rows']}, "
            f"share {source['share']:.3f}"
            + (f", an epoch every {epoch:,.1f} steps" if epoch else ", not shown at first")
        )
        ledger = source["ledger"] or {}
        for name in LEDGER:
            if ledger.get(name):
                console.print(f"  {name.replace('_', ' '):<20} {ledger[name]:>15,}")
