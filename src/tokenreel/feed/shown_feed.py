"""A feed for people: a line of facts, one for each source; in a notebook the shares as bands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.display import count_of, drawn_or_none, few, named, never_raising
from tokenreel.feed.share_curve import drawn_steps, share_curve

if TYPE_CHECKING:
    from tokenreel.display.share_bands import Mark
    from tokenreel.feed.feed import Feed

COLUMNS = 120  # of the drawing of shares
MOST_ROWS = 16  # of the table of sources in a notebook


@never_raising
def told_feed(feed: Feed) -> str:
    """Return the facts of a feed: a line, and one for each source; it is Feed.__repr__."""
    lines = [
        f"{name}: share {share:.1%}, {rows:,} rows ({kind}), {epochs:.2f} epochs so far, {path}"
        for name, share, rows, kind, epochs, path in source_facts(feed)
    ]
    return named("Feed", _facts_of(feed), few(lines, "sources"))


@drawn_or_none
def feed_html(feed: Feed) -> str:
    """Return a card: the shares over the run, phases marked, and a table of the sources.

    It is Feed._repr_html_.
    """
    from tokenreel.display.escaped import printed
    from tokenreel.display.notebook import Html, card, table_html
    from tokenreel.display.share_bands import marks_html, share_bands
    from tokenreel.display.style_sheet import PREFIX
    from tokenreel.display.token_chips import swatch_html

    head = ("source", "share now", "rows", "made by", "epochs so far", "store")
    rows = []
    for number, (name, share, count, kind, epochs, path) in enumerate(source_facts(feed)):
        shown = Html(f"{swatch_html(number, prefix=PREFIX)} {printed(name)}")
        store = Html(f'<span class="{PREFIX}path">{printed(path)}</span>')
        rows.append((shown, f"{share:.1%}", count, kind, epochs, store))
    drawn, stop = "", drawn_steps(feed)
    if stop:
        borders, shares = share_curve(feed, stop_step=stop, columns=COLUMNS)
        marks = marks_of(feed)
        drawn = share_bands(borders, shares, marks=marks, step=feed.step, prefix=PREFIX)
        drawn += marks_html(marks, prefix=PREFIX)
    return card("Feed", drawn, table_html(head, rows, most=MOST_ROWS), facts=_facts_of(feed))


def marks_of(feed: Feed) -> list[Mark]:
    """Return the steps at which weights change, by the recipe's phases or on the way."""
    from tokenreel.display.share_bands import Mark

    changes = feed.changes
    last = changes[0]["step"] if changes else None  # from then on phases no longer come
    marks = [
        Mark(step=phase.start_step, text=_told_phase(phase.weights, phase.ramp_steps))
        for phase in feed.recipe.phases
        if last is None or phase.start_step <= last
    ]
    marks += [
        Mark(step=change["step"], text=f"changed to {_told_weights(change['weights'])}")
        for change in changes
    ]
    return sorted(marks, key=lambda mark: mark.step)


def _told_phase(weights: Mapping[str, float], ramp_steps: int) -> str:
    over = f" over {count_of(ramp_steps, 'step')}" if ramp_steps else ""
    return f"{_told_weights(weights)}{over}"


def _told_weights(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {weight:g}" for name, weight in weights.items())


def _facts_of(feed: Feed) -> list[str]:
    recipe, steps = feed.recipe, feed.num_steps
    parts = f" in {recipe.grad_accum} microbatches" if recipe.grad_accum > 1 else ""
    return [
        f"step {feed.step:,} of {'a run without end' if steps is None else f'{steps:,}'}",
        f"global batch of {recipe.global_batch_size:,} rows of {recipe.seq_len:,} tokens{parts}",
        f"seed {recipe.seed}",
        *([f"passes {recipe.passes}"] if recipe.passes is not None else []),
    ]


def source_facts(feed: Feed) -> list[tuple[str, float, int, str, float, str]]:
    """Return name, share, rows, kind of rows, epochs so far and path of each source."""
    position = feed.step * feed.recipe.global_batch_size
    num_rows, epochs = [plan.num_rows for plan in feed.plans], feed.epoch_of(feed.step)
    shares = feed.order.shares_at(position)
    if shares is None:  # one source after the other: of the whole run
        shares = np.array(num_rows) / sum(num_rows)
    return [
        (item.name, share, rows, item.rows, epochs[item.name], str(item.path))
        for item, share, rows in zip(feed.recipe.sources, shares.tolist(), num_rows, strict=True)
    ]
