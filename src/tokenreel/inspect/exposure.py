"""How often a run shows each source: rows, tokens and epochs, phase by phase.

Counted by the order itself, which knows in closed form what came before a step: some
microseconds a source for each phase, however many steps there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.feed.share_curve import rows_before
from tokenreel.order.mixture import Mixture

MOST_EPOCHS = 4  # text that is shown more often than about so many times teaches less and less


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps start to stop, between two changes of the weights; stop None: to no end.

    `ramp_steps` of them pass until the weights of the phase hold.
    """

    start: int
    stop: int | None
    ramp_steps: int = 0


def stretches(recipe: Recipe, num_steps: int | None) -> list[Stretch]:
    """Return the stretches of a run, without phases that it does not reach."""
    ramps = {0: 0} | {phase.start_step: phase.ramp_steps for phase in recipe.phases}
    reached = sorted(start for start in ramps if num_steps is None or start < num_steps)
    borders = [*reached, num_steps]
    return [
        Stretch(start=start, stop=stop, ramp_steps=ramps[start])
        for start, stop in pairwise(borders)
        if start is not None
    ]


def showings(feed: Feed, rows: np.ndarray) -> list[dict[str, Any]]:
    """Return what so many rows of each source are: tokens, epochs, share of all rows.

    `tokens` counts all places of these rows, padding too. `trained_tokens` is exact for whole
    epochs, else in proportion.
    """
    total = int(rows.sum())
    return [
        {
            "name": source.name,
            "rows": count,
            "tokens": count * feed.recipe.seq_len,
            "trained_tokens": round(count * plan.ledger["trained"] / plan.num_rows),
            "epochs": count / plan.num_rows,
            "share": count / total if total else 0.0,
        }
        for source, plan, count in zip(feed.recipe.sources, feed.plans, rows.tolist(), strict=True)
    ]


def phases(feed: Feed) -> list[dict[str, Any]]:
    """Return each stretch of the run and what it shows; of one without end, the final shares."""
    described = []
    for stretch in stretches(feed.recipe, feed.num_steps):
        if stretch.stop is None:
            shown = _settled(feed, stretch)
        else:
            counts = rows_before(feed, stretch.stop) - rows_before(feed, stretch.start)
            shown = showings(feed, counts)
        described.append(
            {
                "start_step": stretch.start,
                "stop_step": stretch.stop,
                "ramp_steps": stretch.ramp_steps,
                "sources": shown,
            }
        )
    return described


def _settled(feed: Feed, stretch: Stretch) -> list[dict[str, Any]]:
    """Return the shares that hold at the end of a run without end."""
    settled = (stretch.start + stretch.ramp_steps) * feed.recipe.global_batch_size
    shares = feed.order.shares_from(settled)
    assert shares is not None, "a run in order has an end"
    unknown = {"rows": None, "tokens": None, "trained_tokens": None, "epochs": None}
    return [
        {"name": source.name, **unknown, "share": float(share)}
        for source, share in zip(feed.recipe.sources, shares, strict=True)
    ]


def warnings_of(feed: Feed) -> list[str]:
    """Return what the one who wrote the recipe may not have meant, with numbers and a remedy."""
    if feed.recipe.passes is not None:  # each row so often as was asked for
        return []
    num_steps = feed.num_steps
    unreached = [
        f"the phase from step {phase.start_step:,} on is not reached: the run ends after "
        f"{num_steps:,} steps"
        for phase in feed.recipe.phases
        if num_steps is not None and phase.start_step >= num_steps
    ]
    shown = None if num_steps is None else rows_before(feed, num_steps)
    told = []
    for number, plan in enumerate(feed.plans):
        rows = None if shown is None else int(shown[number])
        if rows == 0 or (rows is None and feed.order.first_position(number, 0) < 0):
            told.append(_never_shown(feed, number))
        elif rows is not None and rows > MOST_EPOCHS * plan.num_rows:
            told.append(_shown_often(feed, number, rows))
    return [*told, *unreached]


def step_of_epoch(feed: Feed, number: int, epoch: int) -> int | None:
    """Return the step in which a source begins an epoch; None: never."""
    position = feed.order.first_position(number, epoch * feed.plans[number].num_rows)
    return None if position < 0 else position // feed.recipe.global_batch_size


def _never_shown(feed: Feed, number: int) -> str:
    name, first = feed.recipe.sources[number].name, step_of_epoch(feed, number, 0)
    if first is None:
        mixture = feed.order.eras[0].mixture
        assert isinstance(mixture, Mixture), "a run in order shows every source"
        if mixture.schedule.largest_shares[number]:
            why = "its weights add up to less than a row; give it more weight"
        else:
            why = "its weight is 0 in every phase; give it some"
        return f"{name} is never shown: {why}, or leave the source out"
    return (
        f"{name} is never shown: its first row would come in step {first:,}, and the run ends "
        f"after {feed.num_steps:,} steps; give it more weight, or the run more steps"
    )


def _shown_often(feed: Feed, number: int, rows: int) -> str:
    source, num_rows = feed.recipe.sources[number], feed.plans[number].num_rows
    enough = step_of_epoch(feed, number, MOST_EPOCHS)
    remedies = [f"fewer steps ({MOST_EPOCHS} epochs end in step {enough:,})", "more text"]
    weight = _weight_for(feed, number, MOST_EPOCHS * num_rows / rows)
    if len(feed.plans) > 1:
        remedies.insert(0, f"less weight{'' if weight is None else f' ({weight})'}")
    return (
        f"{source.name} is shown {rows / num_rows:,.1f} times ({rows:,} rows of {num_rows:,}); "
        f"more than about {MOST_EPOCHS} times teaches less and less: give it "
        f"{', or '.join(remedies)}"
    )


def _weight_for(feed: Feed, number: int, factor: float) -> str | None:
    """Return the weight that makes a source's share `factor` times as large, beside its own.

    None where weights do not hold as they are: with phases, or a temperature.
    """
    recipe = feed.recipe
    if recipe.phases or recipe.temperature != 1.0:
        return None
    mine = recipe.sources[number].weight
    others = sum(source.weight for source in recipe.sources) - mine
    share = factor * mine / (mine + others)
    if not others:
        return None
    return f"{share / (1 - share) * others:.3g} instead of {mine:.3g}"
