"""tokenreel plan RECIPE: the rows of each source, and how often the run shows them."""

from __future__ import annotations

import argparse
from typing import Any

from tokenreel.cli.output import emit, notice
from tokenreel.cli.plan_drawing import draw
from tokenreel.cli.plan_page import check_report, write_plan_page
from tokenreel.cli.recipe_option import add_recipe, open_feed
from tokenreel.feed.feed import Feed
from tokenreel.feed.share_curve import rows_before
from tokenreel.inspect.exposure import (
    MOST_EPOCHS,
    phases,
    showings,
    step_of_epoch,
    warnings_of,
)

EPILOG = """\
In --json each source has the account of one epoch, its "ledger", in tokens: placed (in a row),
truncated (cut off long documents) and dropped (in no row) make up all tokens of the split;
overlap is shown twice, as the last token of a row and the first of the next; placed, overlap
and padding fill the slots, of which a row has seq_len + 1; trained tokens are labels that
weigh in the loss, masked ones (what a user says, for instance) are seen and weigh nothing."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_recipe(parser)
    parser.add_argument(
        "--report", metavar="FILE.html", help="write the plan as a page that stands alone, too"
    )
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Plan the rows, which keeps the plans beside their stores, and describe them."""
    page = None if args.report is None else check_report(args.report)
    feed = open_feed(args)
    facts = describe(feed)
    if page is not None:
        write_plan_page(page, feed, facts, recipe=args.recipe)
    emit(args, facts, lambda console: draw(console, feed, facts))
    if page is not None:
        notice(args, f"report: {page}")
    return 0


def describe(feed: Feed) -> dict[str, Any]:
    """Return what a run is made of, and what it shows."""
    recipe, num_steps = feed.recipe, feed.num_steps
    shown = None
    if num_steps is not None:
        shown = showings(feed, rows_before(feed, num_steps))
    return {
        "seq_len": recipe.seq_len,
        "global_batch_size": recipe.global_batch_size,
        "steps": num_steps,
        "passes": recipe.passes,
        "ending": None if feed.ending is None else str(feed.ending),
        "fingerprint": feed.fingerprint,
        "sources": [_source(feed, number) for number in range(len(feed.plans))],
        "phases": phases(feed),
        "shown": shown,
        "warnings": warnings_of(feed),
    }


def _source(feed: Feed, number: int) -> dict[str, Any]:
    source, plan, store = feed.recipe.sources[number], feed.plans[number], feed.stores[number]
    share = float(feed.order.first_shares[number])
    size = feed.recipe.global_batch_size
    return {
        "name": source.name,
        "rows": source.rows,
        "num_rows": plan.num_rows,
        "share": share,
        "steps_per_epoch": plan.num_rows / (size * share) if share else None,
        f"step_after_{MOST_EPOCHS}_epochs": step_of_epoch(feed, number, MOST_EPOCHS),
        "store": store.fingerprint,
        "ledger": dict(plan.ledger),
    }
