"""What a page is told of a run: what it consists of, and its time line.

Everything comes from the order in closed form: some 30 µs for each column of the time line,
however many steps there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenreel
from tokenreel.feed.feed import Feed
from tokenreel.feed.share_curve import rows_before, share_curve
from tokenreel.inspect.exposure import step_of_epoch
from tokenreel.text.turns import ROLES
from tokenreel.view.subject import Subject

NUM_HUES = 8  # of the style sheet
MOST_MARKS = 400
MOST_NAME = 60  # characters of a source's name in a mark
EPOCHS_SHOWN = 2  # of a run without end: so many of its longest source are on the time line


def target_facts(subjects: Sequence[Subject], number: int = 0) -> dict[str, Any]:
    """Return what one of the subjects is, beside the names of all of them."""
    subject = subjects[number]
    facts: dict[str, Any] = {
        "title": subject.title,
        "kind": subject.kind,
        "fingerprint": subject.fingerprint,
        "version": tokenreel.__version__,
        "targets": [
            {"title": item.title, "kind": item.kind, "fingerprint": item.fingerprint}
            for item in subjects
        ],
        "has_tokenizer": any(item is not None for item in subject.id_texts),
        "roles": list(ROLES),
        "steps": None,
        "reel_stop": None,
        "batch_rows": None,
        "seq_len": None,
        "grad_accum": None,
        "seed": None,
        "sources": [],
        "phases": [],
        "stores": [
            {
                "index": index,
                "title": store.path.absolute().name,
                "path": str(store.path),
                "fingerprint": store.fingerprint,
                "has_tokenizer": subject.id_texts[index] is not None,
            }
            for index, store in enumerate(subject.stores)
        ],
    }
    return facts | (_run_facts(subject.feed) if subject.kind == "recipe" else {})


def _run_facts(feed: Feed) -> dict[str, Any]:
    recipe = feed.recipe
    return {
        "steps": feed.num_steps,
        "reel_stop": reel_stop(feed),
        "batch_rows": recipe.global_batch_size,
        "seq_len": recipe.seq_len,
        "grad_accum": recipe.grad_accum,
        "seed": str(recipe.seed),  # more digits than a number of JavaScript holds
        "passes": recipe.passes,
        "ending": None if feed.ending is None else str(feed.ending),
        "sources": [
            {
                "name": source.name,
                "store": number,
                "split": source.split,
                "rows": source.rows,
                "weight": source.weight,
                "num_rows": plan.num_rows,
                "num_documents": plan.split.num_documents,
                "hue": number % NUM_HUES,
            }
            for number, (source, plan) in enumerate(zip(recipe.sources, feed.plans, strict=True))
        ],
        "phases": [
            {
                "start_step": phase.start_step,
                "ramp_steps": phase.ramp_steps,
                "weights": dict(phase.weights),
            }
            for phase in recipe.phases
        ],
        "changes": feed.changes[:MOST_MARKS],
    }


def reel_stop(feed: Feed) -> int:
    """Return the step up to which a time line is drawn: the run's end, or a horizon.

    Of a run without end that is where its slowest source has been shown twice, or a while behind
    its last phase.
    """
    if feed.num_steps is not None:
        return max(feed.num_steps, 1)
    ends = [step_of_epoch(feed, number, EPOCHS_SHOWN) or 0 for number in range(len(feed.plans))]
    phases = [phase.start_step + phase.ramp_steps for phase in feed.recipe.phases]
    changes = [change["step"] for change in feed.changes[-1:]]
    return max(*ends, max([*phases, *changes], default=0) * 5 // 4, 1)


def reel_facts(feed: Feed, *, start: int, stop: int, columns: int) -> dict[str, Any]:
    """Return the shares and epochs of all sources over steps start to stop, and what happens."""
    borders, shares = share_curve(feed, start_step=start, stop_step=stop, columns=columns)
    counts = [rows_before(feed, border) for border in borders]
    return {
        "borders": borders,
        "shares": [[round(share, 6) for share in line] for line in shares.tolist()],
        "epochs": [
            [round(int(count[number]) / plan.num_rows, 6) for count in counts]
            for number, plan in enumerate(feed.plans)
        ],
        "marks": _marks(feed, start, stop),
    }


def _marks(feed: Feed, start: int, stop: int) -> list[dict[str, Any]]:
    """Return what happens between two steps, in order: phases, changes, epochs, the end."""
    marks = []
    for phase in feed.recipe.phases:
        told = _told_weights(phase.weights)
        marks.append(_mark(phase.start_step, "phase", f"weights {told}"))
        if phase.ramp_steps:
            end = phase.start_step + phase.ramp_steps
            marks.append(_mark(end, "ramp", f"these weights are reached: {told}"))
    for change in feed.changes[:MOST_MARKS]:
        told = _told_weights(change["weights"])
        marks.append(_mark(change["step"], "change", f"weights changed to {told}"))
    marks += _epoch_marks(feed, start, stop)
    if feed.num_steps is not None:
        ending = f"the run ends after {feed.num_steps:,} steps"
        own = feed.ending is not None and feed.ending.steps == feed.num_steps
        marks.append(_mark(feed.num_steps, "end", str(feed.ending) if own else ending))
    inside = [mark for mark in marks if start <= mark["step"] <= stop]
    return sorted(inside, key=lambda mark: mark["step"])[:MOST_MARKS]


def _epoch_marks(feed: Feed, start: int, stop: int) -> list[dict[str, Any]]:
    """Return where sources begin new epochs; so many of them that they can be told apart."""
    most = max(MOST_MARKS // (4 * len(feed.plans)), 1)
    first, last = rows_before(feed, start), rows_before(feed, stop)
    marks = []
    for number, plan in enumerate(feed.plans):
        before, after = (int(count[number]) // plan.num_rows for count in (first, last))
        epochs = range(before + 1, after + 1)
        every = -(-len(epochs) // most) if epochs else 1
        for epoch in epochs[::every]:
            step = step_of_epoch(feed, number, epoch)
            if step is not None:
                name = feed.recipe.sources[number].name[:MOST_NAME]
                marks.append(_mark(step, "epoch", f"{name} begins epoch {epoch:,}", number))
    return marks


def _told_weights(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{name[:MOST_NAME]} {weight:g}" for name, weight in weights.items())


def _mark(step: int, kind: str, text: str, source: int | None = None) -> dict[str, Any]:
    return {"step": step, "kind": kind, "source": source, "text": text}
