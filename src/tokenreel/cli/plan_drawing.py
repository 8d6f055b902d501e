"""What `tokenreel plan` prints: the sources, what each phase shows of them, and their shares.

Plain characters: it reads the same without colour, in a pipe and in a log. On a terminal a source
has the same colour everywhere, and "trained" looks as trained tokens do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from tokenreel.cli.output import columns_table, count, printable, short_count
from tokenreel.cli.token_drawing import QUIET, STYLES, WARNING, has_colour, hue_style
from tokenreel.feed.feed import Feed
from tokenreel.feed.share_curve import drawn_steps, share_curve
from tokenreel.inspect.exposure import MOST_EPOCHS

MOST_SOURCES = 16  # so many are drawn one by one in a phase; the smaller ones are added up
MOST_WARNINGS = 8
LEVELS = "·▁▂▃▄▅▆▇█"  # the first is for a share of 0
PLAIN_LEVELS = ".123456789"
NAME_WIDTH = 24

FOOTNOTE = """\
rows      of an epoch, in which each is shown once
tokens    of the split
left out  in no row: cut off long documents, ends that fill no row, documents too short to use
trained   labels that weigh in the loss, in an epoch
context   seen, but not trained: the first token of a row, or what a user says
padding   places of rows that hold no token"""
LEFT_OUT = {
    "short_documents": "short documents",
    "long_groups": "long groups",
    "unfit_documents": "chats whose system turn does not fit a row beside their last answer",
    "untrained_documents": "untrained documents",
    "untrained_rows": "untrained rows",
}
SHOWN_FOOTNOTE = "tokens shown are rows times seq_len, padding included"


def draw(console: Console, feed: Feed, facts: dict[str, Any]) -> None:
    """Draw everything."""
    _draw_run(console, facts)
    _draw_sources(console, facts)
    _draw_phases(console, facts)
    if len(feed.plans) > 1:
        _draw_shares(console, feed, facts)
    _draw_warnings(console, facts["warnings"])
    if facts["steps"] is None:
        console.print(
            "\nThe run has no end: with --set steps=N you see how often N steps show each source.",
            markup=False,
        )


def _draw_warnings(console: Console, warnings: Sequence[str]) -> None:
    if not warnings:
        return
    console.print()
    for warning in warnings[:MOST_WARNINGS]:
        line = Text("warning:", WARNING if has_colour(console) else "")
        console.print(line.append(f" {printable(warning)}", "not bold default"))
    more = len(warnings) - MOST_WARNINGS
    if more > 0:
        console.print(f"and {_counted(more, 'warning')} more; --json has all of them")


def run_line(facts: Mapping[str, Any]) -> str:
    """Return how large the run is: rows and tokens of a step, and of all of them."""
    rows, length, steps = facts["global_batch_size"], facts["seq_len"], facts["steps"]
    line = f"{count(rows)} rows of {count(length)} tokens a step"
    if facts["shown"] is None:
        line += ", no end"
    else:
        shown = sum(source["rows"] for source in facts["shown"])
        line += f", {_counted(steps, 'step')}: {count(shown)} rows, {count(shown * length)} tokens"
    return line


def _draw_run(console: Console, facts: dict[str, Any]) -> None:
    console.print(f"{run_line(facts)}; fingerprint {facts['fingerprint'][:16]}", markup=False)
    if facts["ending"]:
        console.print(facts["ending"], markup=False)


def _draw_sources(console: Console, facts: dict[str, Any]) -> None:
    """Draw what each source has for an epoch, and the words of the table."""
    head = ("source", "rows", "tokens", "left out", "trained", "context", "padding")
    table: list[tuple[str, ...]] = [head]
    for source in facts["sources"]:
        ledger = source["ledger"]
        figures = (
            source["num_rows"],
            ledger["tokens"],
            ledger["truncated"] + ledger["dropped"],
            ledger["trained"],
            ledger["masked"],
            ledger["padding"],
        )
        name = f"{_clipped(source['name'])} ({source['rows']})"
        table.append((name, *map(short_count, figures)))
    console.print()
    columns_table(console, table, styles=_styles(console))
    for source in facts["sources"]:
        for words in left_out(source["ledger"]):
            console.print(f"{_clipped(source['name'])}: {words}", markup=False)
    footnote = Text(FOOTNOTE, QUIET)
    for word, style in _styles(console).items():
        footnote.highlight_regex(rf"(?m)^{word}\b", style)
    console.print(footnote)


def _styles(console: Console) -> dict[str, str]:
    """Return the styles of words that are kinds of tokens."""
    return {"trained": f"not dim {STYLES[False, True]}"} if has_colour(console) else {}


def left_out(ledger: Mapping[str, int]) -> list[str]:
    """Return what the table of sources has no column for: groups, and what is in no row."""
    told = []
    if groups := ledger.get("groups"):
        told.append(f"{count(groups)} groups of answers, {count(ledger['segments'])} in all")
    return told + [
        f"{count(ledger[kind])} {words} are left out"
        for kind, words in LEFT_OUT.items()
        if ledger.get(kind)
    ]


def _draw_phases(console: Console, facts: dict[str, Any]) -> None:
    """Draw rows, tokens and epochs of each source: in each phase, then in all."""
    for number, phase in enumerate(facts["phases"]):
        stop = phase["stop_step"]
        endless = facts["sources"] if stop is None else None
        _draw_shown(console, phase_title(phase), phase["sources"], endless)
        if number == 0 and stop is not None:
            console.print(SHOWN_FOOTNOTE, style=QUIET, markup=False)
    if len(facts["phases"]) > 1 and facts["shown"] is not None:
        _draw_shown(console, "in all", facts["shown"], None)


def phase_title(phase: Mapping[str, Any]) -> str:
    """Return which steps a phase has, and how long its weights change."""
    start, stop = phase["start_step"], phase["stop_step"]
    title = f"steps {count(start)} {'on' if stop is None else f'to {count(stop - 1)}'}"
    if phase["ramp_steps"]:
        title += f", weights change over the first {count(phase['ramp_steps'])}"
    return title


def _draw_shown(
    console: Console,
    title: str,
    shown: Sequence[dict[str, Any]],
    endless: Sequence[dict[str, Any]] | None,
) -> None:
    """Draw a table of what is shown; without end, by when a source was shown often enough."""
    ranked = sorted(range(len(shown)), key=lambda s: -shown[s]["share"])
    few = ranked if len(shown) <= MOST_SOURCES else ranked[: MOST_SOURCES - 1]
    chosen, rest = sorted(few), ranked[len(few) :]
    lines: list[tuple[str, ...]]
    if endless is None:
        lines = [("", "share", "rows", "tokens", "epochs")]
        lines += [_shown_line(shown[s]) for s in chosen]
        sums = (sum(shown[s][name] for s in rest) for name in ("rows", "tokens"))
        extra = (*map(short_count, sums), "")
    else:
        lines = [("", "share", f"shown {MOST_EPOCHS} times by step")]
        lines += [_endless_line(shown[s], endless[s]) for s in chosen]
        extra = ("",)
    if rest:
        share = sum(shown[s]["share"] for s in rest)
        lines.append((f"{count(len(rest))} smaller ones", f"{share:.3f}", *extra))
    console.print(f"\n{title}", style="bold", markup=False)
    columns_table(console, lines)


def _shown_line(shown: dict[str, Any]) -> tuple[str, ...]:
    figures = (short_count(shown["rows"]), short_count(shown["tokens"]), f"{shown['epochs']:,.2f}")
    return _clipped(shown["name"]), f"{shown['share']:.3f}", *figures


def _endless_line(shown: dict[str, Any], source: dict[str, Any]) -> tuple[str, ...]:
    step = source[f"step_after_{MOST_EPOCHS}_epochs"]
    by_step = "never" if step is None else count(step)
    return _clipped(shown["name"]), f"{shown['share']:.3f}", by_step


def _draw_shares(console: Console, feed: Feed, facts: dict[str, Any]) -> None:
    """Plot the shares over the steps: a line of bars for each source, from 0 to the largest."""
    stop = drawn_steps(feed)
    if stop == 0:
        return
    names = [_clipped(source["name"]) for source in facts["sources"]]
    width = max(map(len, names))
    borders, shares = share_curve(feed, stop_step=stop, columns=max(10, console.width - width - 19))
    largest = float(shares.max())
    levels = LEVELS if "utf" in console.encoding.lower() else PLAIN_LEVELS
    scale = f"{levels[-1]} is {largest:.3f}, {levels[0]} is 0"
    console.print(f"\nshares over the steps ({scale})", style="bold", markup=False)
    order = np.argsort(-shares.mean(axis=1), kind="stable")[:MOST_SOURCES]
    for number in sorted(order.tolist()):
        line, name = shares[number], names[number]
        ends = " to ".join(dict.fromkeys((f"{line[0]:.3f}", f"{line[-1]:.3f}")))
        drawn = Text(f"{name:<{width}} ")
        drawn.append(_bars(line, largest, levels), hue_style(console, number))
        console.print(drawn.append(f" {ends}"))
    starts = [phase["start_step"] for phase in facts["phases"]]
    console.print(f"{'':<{width}} {_axis(borders, starts)}", markup=False)


def _bars(shares: np.ndarray, largest: float, levels: str) -> str:
    """Return a character for each share; the smallest level for whatever is more than 0.

    >>> _bars(np.array([0.0, 0.01, 0.5, 1.0]), 1.0, LEVELS)
    '·▁▄█'
    """
    heights = np.ceil(shares / (largest or 1.0) * (len(levels) - 1)).astype(int)
    return "".join(levels[height] for height in heights.tolist())


def _axis(borders: Sequence[int], starts: Sequence[int]) -> str:
    """Return the steps at which phases start, each under its column, and the last step.

    >>> _axis([0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100], [0, 40])
    '0   40  99'
    """
    marks = {
        next(k for k, (_, stop) in enumerate(pairwise(borders)) if start < stop): start
        for start in starts
        if start < borders[-1]
    }
    line = ""
    for column, step in sorted(marks.items()):
        if not line or column > len(line):
            line = line.ljust(column) + count(step)
    end = count(borders[-1] - 1)
    column = max(len(line) + 1, len(borders) - 1 - len(end))
    return line.ljust(column) + end


def _clipped(name: str) -> str:
    name = printable(name)
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…"


def _counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'s' * (number != 1)}"
