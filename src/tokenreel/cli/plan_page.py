"""The page of `tokenreel plan --report FILE.html`: the same facts as the drawing, to be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenreel.cli.plan_drawing import FOOTNOTE, SHOWN_FOOTNOTE, left_out, phase_title, run_line
from tokenreel.display import count_of
from tokenreel.display.escaped import printed
from tokenreel.display.html_page import cells_table, html_page
from tokenreel.display.share_bands import marks_html, share_bands
from tokenreel.display.token_chips import swatch_html
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.share_curve import drawn_steps, share_curve
from tokenreel.feed.shown_feed import marks_of
from tokenreel.filesystem import LOCAL
from tokenreel.inspect.exposure import MOST_EPOCHS

COLUMNS = 400


def check_report(path: str) -> Path:
    """Return the path of a page to be written; ConfigError if it cannot be one."""
    page = Path(path)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ConfigError("bad report", expected="the name of an .html file", actual=path)
    if not page.absolute().parent.is_dir():
        raise ConfigError(
            "bad report", expected="a folder that exists", actual=page.absolute().parent
        )
    return page


def write_plan_page(path: Path, feed: Feed, facts: Mapping[str, Any], *, recipe: str) -> None:
    """Write the page of a plan, whole or not at all."""
    LOCAL.write_whole(path, plan_page(feed, facts, recipe=recipe).encode("utf-8", "replace"))


def plan_page(feed: Feed, facts: Mapping[str, Any], *, recipe: str) -> str:
    """Return the page of a plan: warnings first, then shares, sources and phases."""
    name = Path(recipe).name
    return html_page(
        f"{name}: what the run shows",
        [
            f"<h1>{printed(name)}<small>{printed(facts['fingerprint'][:16])}</small></h1>",
            f"<p>{printed(run_line(facts))}</p>",
            f"<p>{printed(facts['ending'])}</p>" if facts["ending"] else "",
            _warnings(facts["warnings"]),
            _shares(feed),
            _sources(facts["sources"]),
            *_phases(facts),
        ],
    )


def _warnings(warnings: Sequence[str]) -> str:
    items = "".join(f"<li>{printed(warning)}</li>" for warning in warnings)
    title = f"<h2>{count_of(len(warnings), 'warning')}</h2>"
    return f'{title}<ul class="warnings">{items}</ul>' if warnings else ""


def _shares(feed: Feed) -> str:
    stop = drawn_steps(feed)
    if not stop:
        return ""
    borders, shares = share_curve(feed, stop_step=stop, columns=COLUMNS)
    marks = marks_of(feed)
    names = "".join(
        f"<span>{_named(number, source.name)}</span>"
        for number, source in enumerate(feed.recipe.sources)
    )
    return (
        f"<h2>Shares over the steps</h2>{share_bands(borders, shares, marks=marks)}"
        f'<div class="chip-legend">{names}</div>{marks_html(marks)}'
    )


def _named(number: int, name: str) -> str:
    return f"{swatch_html(number)} {printed(name)}"


def _sources(sources: Sequence[Mapping[str, Any]]) -> str:
    head = ("source", "made by", "rows", "tokens", "left out", "trained", "context", "padding")
    rows, told = [], []
    for number, source in enumerate(sources):
        ledger = source["ledger"]
        figures = (
            source["num_rows"],
            ledger["tokens"],
            ledger["truncated"] + ledger["dropped"],
            ledger["trained"],
            ledger["masked"],
            ledger["padding"],
        )
        numbers = (f"{figure:,}" for figure in figures)
        rows.append((_named(number, source["name"]), printed(source["rows"]), *numbers))
        told += [f"{source['name']}: {words}" for words in left_out(ledger)]
    remarks = "".join(f"<li>{printed(line)}</li>" for line in told)
    words = [line.split("  ", 1) for line in FOOTNOTE.splitlines()]
    meant = [(printed(word), printed(meaning.strip())) for word, meaning in words]
    return (
        f"<h2>Sources, in one epoch</h2>{cells_table(rows, head=head, numbers=range(2, 8))}"
        + (f"<ul>{remarks}</ul>" if told else "")
        + f"<details><summary>what the words mean</summary>{cells_table(meant, css='facts')}"
        "</details>"
    )


def _phases(facts: Mapping[str, Any]) -> list[str]:
    sections = []
    for phase in facts["phases"]:
        endless = facts["sources"] if phase["stop_step"] is None else None
        sections.append(_shown(phase_title(phase).capitalize(), phase["sources"], endless))
    if len(facts["phases"]) > 1 and facts["shown"] is not None:
        sections.append(_shown("In all", facts["shown"], None))
    return [*sections, f"<p>{printed(SHOWN_FOOTNOTE)}</p>"]


def _shown(
    title: str, shown: Sequence[Mapping[str, Any]], endless: Sequence[Mapping[str, Any]] | None
) -> str:
    """Return a table of what is shown; without end, by when a source was shown often enough."""
    head = ["", "share", "rows", "tokens", "epochs"]
    if endless is not None:
        head = ["", "share", f"shown {MOST_EPOCHS} times by step"]
    rows = []
    for number, source in enumerate(shown):
        figures = [f"{source['share']:.1%}"]
        if endless is None:
            figures += [f"{source['rows']:,}", f"{source['tokens']:,}", f"{source['epochs']:,.2f}"]
        else:
            step = endless[number][f"step_after_{MOST_EPOCHS}_epochs"]
            figures.append("never" if step is None else f"{step:,}")
        rows.append((_named(number, source["name"]), *figures))
    return f"<h2>{printed(title)}</h2>{cells_table(rows, head=head, numbers=range(1, 5))}"
